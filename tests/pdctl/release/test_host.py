"""A release on a host: whole or not there, asked before it is named, switched at once, pruned with care."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pdctl.errors import DeadlineError, PdctlError
from pdctl.release import host as host_module
from pdctl.release import hosttool
from pdctl.release.host import HostReleases
from tests.pdctl.release.conftest import host_at, release, releases_of


@pytest.fixture
def tool(tmp_path: Path) -> HostReleases:
    return releases_of(host_at(tmp_path / "root"))


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()} if folder.exists() else set()


def test_an_empty_host_is_looked_at_and_left_alone(tool: HostReleases, tmp_path: Path) -> None:
    look = tool.look()
    assert look.installed.releases == () and look.installed.current is None
    assert (look.root, look.newest) == ("writable", None)
    assert look.facts.python == sys.executable and look.facts.dists["torch"]
    assert not (tmp_path / "root").exists()


def test_install_and_activate(tool: HostReleases, tmp_path: Path) -> None:
    made = release()
    installed = tool.install(made, {})
    assert installed.releases == (made.id,) and installed.trees == {made.tree}
    home = tmp_path / "root" / "releases" / made.id
    assert (home / "tree" / "kernels" / "k.py").read_bytes() == b"\xff\0"
    manifest = json.loads((home / "manifest.json").read_text())
    assert manifest["files"] == made.manifest["files"]
    assert manifest["said"]["engine"] == "9.9" and manifest["said"]["argv"] == ["version"]
    tool.activate(made.id)
    assert (tmp_path / "root" / "current").resolve() == home.resolve()
    look = tool.look()
    assert look.installed.current == made.id and look.manifest["tree"] == made.tree


def test_only_what_differs_is_sent(
    tool: HostReleases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = release(1), release(2)
    tool.install(first, {})
    sent: list[set[str]] = []
    pack = host_module.pack

    def watched(files: dict[str, bytes]) -> str:
        sent.append(set(files))
        return pack(files)

    monkeypatch.setattr(host_module, "pack", watched)
    tool.install(second, first.manifest)
    assert sent == [{"engine/__init__.py"}]
    tree = tmp_path / "root" / "trees" / second.tree
    assert (tree / "engine/__init__.py").read_bytes() == b"2"
    assert (tree / "kernels" / "k.py").read_bytes() == b"\xff\0"


def test_a_base_that_was_tampered_with_is_not_copied(tool: HostReleases, tmp_path: Path) -> None:
    first, second = release(1), release(2)
    tool.install(first, {})
    (tmp_path / "root" / "trees" / first.tree / "kernels" / "k.py").write_text("other")
    tool.install(second, first.manifest)
    assert (tmp_path / "root" / "trees" / second.tree / "kernels" / "k.py").read_bytes() == b"\xff\0"


@pytest.mark.parametrize(
    ("main", "said"),
    [
        (b"raise SystemExit('no such library')", "no such library"),
        (b"print('{}')", "ended with exit code 0"),
        (
            b"import json, sys; print(json.dumps({'engine': '1', 'broken': {'torch': 'gone'}})); sys.exit(2)",
            "torch: gone",
        ),
    ],
)
def test_a_release_that_does_not_answer_gets_no_name(
    tool: HostReleases, tmp_path: Path, main: bytes, said: str
) -> None:
    with pytest.raises(PdctlError) as caught:
        tool.install(release(main=main), {})
    assert caught.value.message.startswith("Installing release ")
    assert any(said in line for line in (caught.value.message, *caught.value.details))
    assert names(tmp_path / "root" / "releases") == set()
    assert tool.look().installed.releases == ()


def test_a_preflight_that_hangs_is_ended(tool: HostReleases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "PREFLIGHT", 1.0)
    begin = time.monotonic()
    with pytest.raises(PdctlError, match="did not answer in 1 s"):
        tool.install(release(main=b"import time; time.sleep(600)"), {})
    assert time.monotonic() - begin < 30.0


def test_a_tool_that_hangs_is_a_deadline(tool: HostReleases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "QUICK", 0.01)
    with pytest.raises(DeadlineError, match=r"did not end in 0\.01 s"):
        tool.look()


@pytest.mark.parametrize("lost", ["manifest.json", "../../trees/{tree}"])
def test_a_torn_release_does_not_count_and_is_made_again(
    tool: HostReleases, tmp_path: Path, lost: str
) -> None:
    made = release()
    tool.install(made, {})
    (tmp_path / "root" / "releases" / ".half").mkdir()
    path = tmp_path / "root" / "releases" / made.id / lost.format(tree=made.tree)
    path.resolve().rename(tmp_path / "lost")
    assert tool.look().installed.releases == ()
    assert tool.install(made, {}).releases == (made.id,)
    assert names(tmp_path / "root" / "releases") == {made.id}


def test_env_files_are_read_and_tokens_only_as_digests(tool: HostReleases, tmp_path: Path) -> None:
    env = tmp_path / "root" / "env"
    env.mkdir(parents=True)
    (env / "a.env").write_text('A="1"\n')
    (env / "fleet-token").write_text("s3cret")
    look = tool.look()
    assert look.env == {"a": 'A="1"\n'}
    assert set(look.private) == {"fleet-token"} and "s3cret" not in str(look)


def record(root: Path, serial: int, release: str, unit: str = "u") -> None:
    folder = root / "deployments"
    folder.mkdir(parents=True, exist_ok=True)
    units = {unit: {"release": release, "env": str(serial), "fleet": {}, "spec": {}}}
    (folder / f"d{serial}.json").write_text(
        json.dumps({"id": f"d{serial}", "serial": serial, "units": units})
    )


def test_prune_keeps_what_may_serve(tool: HostReleases, tmp_path: Path) -> None:
    root = tmp_path / "root"
    made = [release(n) for n in range(6)]
    for each in made:
        tool.install(each, {})
    tool.activate(made[5].id)
    record(root, 1, made[0].id)
    record(root, 2, made[1].id)
    record(root, 3, made[2].id)
    (root / "units").mkdir()
    (root / "units" / "u.json").write_text(json.dumps({"env": {"PDCTL_RELEASE": made[3].id}}))
    runs = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=root / "trees" / made[4].tree
    )
    try:
        tool.prune((2, "d2"))
    finally:
        runs.kill()
        runs.wait(20)
    assert [d.id for d in (made[1], made[2], made[3], made[5])] == list(tool.look().installed.releases)
    assert names(root / "deployments") == {"d2.json", "d3.json"}
    # The fourth is no release any more, and a process still runs from its tree.
    assert names(root / "trees") == {m.tree for m in made[1:]}
    tool.prune((2, "d2"))
    assert made[4].tree not in names(root / "trees")


def test_the_record_that_a_kept_deployment_rests_on_stays(tool: HostReleases, tmp_path: Path) -> None:
    """Other hosts have made deployments in between; this one had then what it had recorded last."""
    for serial, content in ((1, "x"), (2, "y"), (5, "x")):
        record(tmp_path / "root", serial, content)
    for oldest, kept in (((0, ""), [1, 2, 5]), ((2, "d2"), [2, 5]), ((4, "d4"), [2, 5]), ((5, "d5"), [5])):
        tool.prune(oldest)
        assert [r["serial"] for r in tool.records()] == kept, oldest


def test_a_full_disk_is_told_with_its_place(tmp_path: Path) -> None:
    """What fails on an open file names no file: a limit of 0 bytes fails in the same way as a full disk."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -f 0\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    tool = releases_of(host_at(tmp_path, python=str(python)))
    with pytest.raises(PdctlError) as caught:
        tool.install(release(1), {})
    assert caught.value.message.endswith(f"failed: {tool.root}: File too large."), caught.value.message


def test_a_missing_interpreter_is_a_sentence(tmp_path: Path) -> None:
    tool = releases_of(host_at(tmp_path, python="/no/python"))
    with pytest.raises(PdctlError, match="Looking at releases with /no/python on local failed"):
        tool.look()


def test_the_tools_need_no_newer_python_than_hosts_have() -> None:
    """Parsed as Python 3.9 parses, and importing nothing but its library."""
    import ast

    from pdctl.release import hostvenv

    for module in (hosttool, hostvenv):
        tree = ast.parse(Path(str(module.__file__)).read_text(), feature_version=(3, 9))
        tops = {n.names[0].name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import)}
        tops |= {str(n.module).split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert tops <= set(sys.stdlib_module_names)
