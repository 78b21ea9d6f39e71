"""A release is named by its content, installed whole, switched atomically, and pruned with care."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.model import HostPaths
from pdctl.release.build import Runtime, build_release, check_runtime, needed_dists, package_files
from pdctl.release.host import HostReleases
from pdctl.transport.local import LocalTransport

RUNTIME = Runtime("/usr/bin/python3", "3.11.7", {"torch": "2.13.0"})


@pytest.fixture
def tool(tmp_path: Path) -> HostReleases:
    return HostReleases(LocalTransport("local"), HostPaths(str(tmp_path)), sys.executable)


def test_the_id_follows_from_content_and_runtime() -> None:
    first = build_release({"engine/a.py": b"1"}, RUNTIME)
    assert build_release({"engine/a.py": b"1"}, RUNTIME).id == first.id
    assert build_release({"engine/a.py": b"2"}, RUNTIME).id != first.id
    assert build_release({"engine/b.py": b"1"}, RUNTIME).id != first.id
    other = Runtime(RUNTIME.python, RUNTIME.version, {"torch": "2.14.0"})
    assert build_release({"engine/a.py": b"1"}, other).id != first.id
    assert first.manifest["constraints"] == {"torch": "2.13.0"}


def test_the_engine_is_found_and_not_imported() -> None:
    code = """
import sys
from pdctl.release.build import package_files
names = list(package_files())
assert "engine/__main__.py" in names and "kernels/__init__.py" in names, names
assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]
print(sorted(m for m in sys.modules if m.split(".")[0] in ("engine", "kernels", "torch", "numpy")))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout.strip()) == (0, "[]"), found.stderr


def test_a_release_runs_by_itself(tool: HostReleases, tmp_path: Path) -> None:
    release = build_release(package_files(), RUNTIME)
    tool.install(release)
    home = tmp_path / "releases" / release.id
    code = "import engine, kernels; print(engine.__file__); print(kernels.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(home)}, cwd="/", capture_output=True, text=True
    )
    assert found.stdout.split() == [str(home / "engine/__init__.py"), str(home / "kernels/__init__.py")]
    assert json.loads((home / "manifest.json").read_text()) == release.manifest


def test_install_activate_and_prune(tool: HostReleases, tmp_path: Path) -> None:
    assert tool.state() == ([], None)
    ids = []
    for number in range(5):
        release = build_release({"engine/a.py": str(number).encode()}, RUNTIME)
        tool.install(release)
        tool.activate(release.id)
        ids.append(release.id)
    assert tool.state() == (ids, ids[-1])
    assert (tmp_path / "current" / "engine" / "a.py").read_text() == "4"
    tool.activate(ids[1])
    tool.prune(1, [ids[0]])
    # The current one, the one in use, and the newest of the others.
    assert set(tool.state()[0]) == {ids[0], ids[1], ids[4]}
    tool.prune(0, [])
    assert tool.state() == ([ids[1]], ids[1])


def test_a_torn_release_does_not_count(tool: HostReleases, tmp_path: Path) -> None:
    release = build_release({"engine/a.py": b"1"}, RUNTIME)
    tool.install(release)
    (tmp_path / "releases" / release.id / "manifest.json").unlink()
    later = HostReleases(LocalTransport("local"), HostPaths(str(tmp_path)), sys.executable)
    assert later.state() == ([], None)
    tool.install(release)
    assert tool.state()[0] == [release.id]
    assert [p.name for p in (tmp_path / "releases").iterdir()] == [release.id]


def test_the_manifest_is_the_last_file_of_the_archive() -> None:
    with tarfile.open(fileobj=io.BytesIO(build_release({"z": b"", "a": b""}, RUNTIME).archive())) as tar:
        assert tar.getnames() == ["a", "z", "manifest.json"]


def test_a_runtime_that_lacks_something_names_it(tool: HostReleases) -> None:
    always, _ = needed_dists()
    assert {"torch", "nixl", "starlette"} <= set(always)
    assert tool.runtime().python == sys.executable
    probe = {"python": "/p", "version": "3.11.0", "dists": {**dict.fromkeys(always, "1"), "nixl": None}}
    with pytest.raises(ConfigError, match="/p on gpu1 lacks nixl"):
        check_runtime(probe, "gpu1")


def test_a_missing_interpreter_is_a_sentence(tmp_path: Path) -> None:
    tool = HostReleases(LocalTransport("local"), HostPaths(str(tmp_path)), "/no/python")
    with pytest.raises(PdctlError, match="asking /no/python on local failed"):
        tool.runtime()
