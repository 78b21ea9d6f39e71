"""The command line: one sentence and an exit code for every failure, JSON pure, verbs loaded when invoked."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from pdctl.__main__ import main
from pdctl.cli.app import BY_NAME, VERBS, hoist
from pdctl.errors import ConfigError
from pdctl.exits import MEANING, Exit
from pdctl.fleet.load import load_fleet
from tests.pdctl.models import model_folder


def pdctl(*argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **more}
    command = [sys.executable, "-m", "pdctl", *argv]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=env, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--local", "--model", str(model_folder(tmp_path / "model"))]) == Exit.OK
    return tmp_path


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANING) == set(Exit)
    assert [int(e) for e in Exit] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 130]


@pytest.mark.parametrize("verb", [v.name for v in VERBS])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == Exit.OK
    assert f"Usage: pdctl {verb}" in capsys.readouterr().out


def numbers(verb: str, module: str) -> dict[str, float | None]:
    """Every option of a verb and its sub-verbs that takes a number -> the least that it takes."""
    found = importlib.import_module(f"pdctl.cli.{module}")
    app = getattr(found, "app", None)
    functions = [found.command] if app is None else [c.callback for c in app.registered_commands]
    hints = [get_type_hints(f, include_extras=True).items() for f in functions]
    options = [
        (f"{verb} {name}", kind) for one in hints for name, kind in one if get_origin(kind) is Annotated
    ]
    return {
        name: k.__metadata__[0].min
        for name, k in options
        if {int, float} & {k.__origin__, *get_args(k.__origin__)}
    }


def test_no_verb_takes_a_negative_number() -> None:
    least = {name: value for verb in VERBS for name, value in numbers(verb.name, verb.module).items()}
    assert {"deploy wait", "rollback wait", "restart wait", "logs lines", "history prune"} <= least.keys()
    assert [option for option, value in least.items() if value is None or value < 0] == []


def test_a_verb_is_imported_when_it_is_invoked() -> None:
    code = "import sys; from pdctl.__main__ import main; main(['--help']);"
    code += "print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'httpx', 'rich', 'tomlkit')"
    code += " or m.startswith(('pdctl.flows', 'pdctl.transport'))])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("argv", "sentence", "hint"),
    [
        (["statsu"], "pdctl has no verb 'statsu'.", "Did you mean status?"),
        (["deploy", "--plann"], "No such option: --plann", "See `pdctl deploy --help`."),
        (["deploy", "--wait", "soon"], "Invalid value for '--wait'", "See `pdctl deploy --help`."),
        (["deploy", "--wait", "-3"], "Invalid value for '--wait': Input should be greater", "deploy --help"),
        (["profile", "lst"], "No such command 'lst'.", "See `pdctl profile --help`."),
        (["logs", "--fleet", "/no/where"], "There is no fleet file at /no/where.", "pdctl init"),
    ],
)
def test_wrong_usage_is_a_sentence_and_exit_2(
    argv: list[str], sentence: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == Exit.USAGE
    said = capsys.readouterr()
    assert said.err.startswith(f"pdctl: {sentence}") and hint in said.err
    assert "Traceback" not in said.err and said.out == ""


def test_an_error_is_json_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--fleet=/no/where", "--json"]) == Exit.USAGE
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert (error["code"], error["exit"], said.err) == ("no_fleet", 2, "")


def test_a_fault_of_our_own_is_no_traceback(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pdctl.cli.down.down", lambda *given: os.environ["NO_SUCH"])
    assert main(["down"]) == Exit.INTERNAL
    found = capsys.readouterr()
    assert "pdctl failed by its own fault: KeyError" in found.err and found.out == ""
    assert "Traceback" not in found.err and "PDCTL_DEBUG=1" in found.err
    monkeypatch.setenv("PDCTL_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["down"])


def test_global_options_may_stand_anywhere_before_the_dashes() -> None:
    assert hoist(["status", "--json", "--fleet", "x"]) == ["--json", "--fleet", "x", "status"]
    assert hoist(["logs", "--fleet=x", "--", "--json"]) == ["--fleet=x", "logs", "--", "--json"]
    with pytest.raises(ConfigError, match="'--fleet' requires an argument"):
        hoist(["status", "--fleet"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == Exit.OK
    assert capsys.readouterr().out.startswith("pdctl 0.")


def test_no_verb_is_the_help_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("Usage: pdctl ")


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--dtype", "bfloat"], "Did you mean bfloat16?"),
        (["--model", "smollm2"], "smollm2-135m"),
        (["--name", "a b"], "lower-case letters"),
        (["--profile", "prod"], "production"),
        (["--model", "/no/such/model"], "no file or folder here"),
        (["--model", "/proc/self/fd"], "cannot be loaded: it has no config.json"),
        (["--model", "/etc/hostname"], "neither a folder nor a GGUF file"),
    ],
)
def test_a_mistyped_init_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--local", *flags]) == Exit.USAGE
    assert hint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_the_operators_to_move(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fleet / ".pdctl").rename(fleet / "aside")
    (fleet / ".pdctl").write_text("")
    assert main(["down"]) == Exit.USAGE
    said = capsys.readouterr().err
    assert said.startswith("pdctl: The fleet's lock on local cannot be used, so nothing was changed: ")
    assert " .pdctl/host: Not a directory" in said


def test_a_value_read_at_start_is_not_written_for_live(fleet: Path) -> None:
    before = (fleet / "profiles" / "default.toml").read_text()
    argv = ["profile", "set", "default", "PD_RANK_TIMEOUT=25", "--reason", "a slow disk", "--live"]
    assert main(argv) == Exit.USAGE
    assert (fleet / "profiles" / "default.toml").read_text() == before


def test_a_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["status"]) == Exit.USAGE
    assert "The current folder is gone." in capsys.readouterr().err


def test_a_cell_named_without_co_is_told_how(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restart", "a"]) == Exit.USAGE
    assert "pdctl restart --co a" in capsys.readouterr().err


def test_init_for_hosts_places_prefills_first_and_routes_on_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hosts = ["--host", "GPU_1=10.0.0.11", "--host", "10.0.0.12"]
    assert main(["init", *hosts, "--model", "/data/m", "--decodes", "2", "--prefills", "1"]) == Exit.OK
    fleet = load_fleet(tmp_path / "fleet.toml")
    assert {n: (h.spec.ssh, h.address) for n, h in fleet.hosts.items()} == {
        "gpu-1": ("GPU_1", "10.0.0.11"),
        "10-0-0-12": (None, "10.0.0.12"),
    }
    places = {u.name: u.host for u in fleet.units()}
    assert places == {
        "prefill-0": "gpu-1",
        "decode-0": "10-0-0-12",
        "decode-1": "gpu-1",
        "router": "gpu-1",
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", "root@gpu1", "--model", "/m"], "--host 'root@gpu1' is no host."),
        (["--host", "gpu1", "--model", "m"], "on hosts a model is named by its path there."),
        (["--host", "gpu1", "--host", "GPU1", "--model", "/m"], "names one host twice"),
        (["--host", "gpu1", "--local", "--model", "/m"], "Where shall the engines run?"),
        ([], "Where shall the engines run?"),
    ],
)
def test_an_init_that_names_no_clear_hosts_writes_nothing(
    flags: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", *flags]) == Exit.USAGE
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_init_never_overwrites(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.read_bytes() for p in fleet.rglob("*") if p.is_file()}
    assert main(["init", "--local"]) == Exit.USAGE
    assert "nothing was changed" in capsys.readouterr().err
    (fleet / ".pdctl" / "token").unlink()
    assert main(["init", "--repair"]) == Exit.OK
    after = {p: p.read_bytes() for p in fleet.rglob("*") if p.is_file()}
    changed = [p.name for p in after if after[p] != before.get(p)]
    assert (changed, set(after)) == (["token"], set(before))


def test_a_fleet_that_was_never_deployed_is_unhealthy_and_harmless(fleet: Path) -> None:
    found = pdctl("status", "--json")
    document = json.loads(found.stdout)
    assert (found.returncode, document["healthy"], found.stderr) == (Exit.FINDINGS, False, "")
    assert [e["unit"]["state"] for e in document["engines"]] == ["missing", "missing"]
    assert pdctl("requests").returncode == Exit.UNREACHABLE
    assert "nothing was running" in pdctl("down").stdout
    assert "No run" not in pdctl("history").stdout
    assert "down" in pdctl("history").stdout


def test_a_plan_is_pure_json_and_changes_nothing(fleet: Path) -> None:
    found = pdctl("deploy", "--plan", "--json", "--detailed-exitcode")
    document = json.loads(found.stdout)
    assert (found.returncode, found.stderr) == (Exit.CHANGES, "")
    assert document["applied"] is False and document["changes"] == len(
        [s for s in document["steps"] if not s["gate"]]
    )
    assert not (fleet / ".pdctl" / "host").exists()


def test_a_restart_alone_says_what_it_risks_and_needs_a_yes(fleet: Path) -> None:
    found = pdctl("restart", "decode-0")
    assert found.returncode == Exit.USAGE
    assert "prefill-0 must drop what it holds of decode-0's old life" in found.stderr
    assert "--yes" in found.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_releases_the_lock_and_is_in_the_history(fleet: Path, number: signal.Signals) -> None:
    slow = fleet / "python"
    slow.write_text(f'#!/bin/sh\n[ "$2" = install ] && sleep 60\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    text = (fleet / "fleet.toml").read_text()
    (fleet / "fleet.toml").write_text(
        text.replace('transport = "local"', f'transport = "local"\npython = "{slow}"')
    )
    child = subprocess.Popen([sys.executable, "-m", "pdctl", "deploy"], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    while "install release" not in child.stderr.readline():
        assert child.poll() is None
    found = pdctl("lock", "status", "--json")
    holder = json.loads(found.stdout)["holder"]
    assert found.returncode == Exit.LOCKED
    assert (holder["pid"], holder["command"], holder["state"]) == (child.pid, "pdctl deploy", "live")
    child.send_signal(number)
    _, said = child.communicate(timeout=30)
    assert child.returncode == Exit.INTERRUPTED
    assert "Interrupted in the middle of `pdctl deploy`." in said and "Traceback" not in said
    assert pdctl("lock", "status").returncode == Exit.OK
    (run,) = json.loads(pdctl("history", "--json").stdout)["runs"]
    assert (run["command"], run["state"]) == ("deploy", "interrupted")
    assert f"`pdctl resume {run['id']}` goes on" in said


def test_the_table_names_modules_that_exist() -> None:
    folder = Path(sys.modules["pdctl.cli.app"].__file__ or "").parent
    files = [(folder / f"{v.module}.py", folder / v.module / "__init__.py") for v in BY_NAME.values()]
    assert all(file.exists() or package.exists() for file, package in files)
