"""Verbs between operators: one changes the fleet at a time, everything is written down, what died goes on."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pdctl.__main__ import main
from pdctl.cli.app import VERBS
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.remote.journal_read import list_runs, read_run
from pdctl.remote.lock import FleetLock, holder_for, lock_on
from pdctl.remote.operator import Operator, me
from pdctl.transport.local import LocalTransport
from tests.pdctl.flows.conftest import FAKE
from tests.pdctl.models import model_folder

ELSEWHERE = Operator("ann", "elsewhere", "another boot pid:[1]", 4242, 17)

# Verbs that change the fleet, each as somebody would call it; the rest only look, or change local files.
CHANGING = {
    "deploy": ["deploy", "--yes"],
    "rollback": ["rollback", "--yes"],
    "restart": ["restart", "decode-0", "--yes"],
    "relink": ["relink", "prefill-0", "decode-0", "--yes"],
    "restart --co": ["restart", "--co", "--yes"],
    "resume": ["resume"],
    "down": ["down", "--yes"],
    "profile": ["profile", "set", "default", "PD_QUEUE_TIMEOUT=350", "--reason", "why", "--live"],
    "profile bisect": ["profile", "bisect", "default", "production", "--yes"],
    "tune-timeout": ["tune-timeout", "--yes"],
    "drill": ["drill", "arm", "prefill-0", "lose-want"],
    "drill disarm": ["drill", "disarm", "prefill-0"],
}
# They change something and wait for nobody.
BESIDE = {"abort": ["abort", "some-request"], "pause": ["pause", "--for", "2h"]}
LOOKING = {
    *("init", "model", "check", "status", "diagnose", "explain", "requests", "logs", "history", "lock"),
    *("adopt", "completion", "load", "incidents"),
    "supervise",  # what it does by itself it does as the verbs do
}


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Path]:
    """Installed engines are fakes; `slow` in the folder makes every install hang."""
    with contextlib.chdir(folder):
        model_folder(folder / "model")
        assert main(["init", "--local", "--drill", "--model", str(folder / "model")]) == Exit.OK
        python, slow = folder / "python", folder / "slow"
        hang = f'while [ "$2" = install ] && [ -e {slow} ]; do sleep 0.1; [ -e {slow} ] || exit 1; done'
        fake = f'[ "$1 $2" = "-m engine" ] && exec {sys.executable} {FAKE} "$@"'
        python.write_text(f'#!/bin/sh\n{hang}\n{fake}\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        edit(folder, 'transport = "local"', f'transport = "local"\npython = "{python}"')
        yield folder
        main(["lock", "release", "--force", "--yes"])
        assert main(["down", "--yes"]) == Exit.OK


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Path]:
    with made(tmp_path) as folder:
        yield folder


@pytest.fixture(scope="module")
def never_deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with made(tmp_path_factory.mktemp("idle")) as folder:
        yield folder


@pytest.fixture
def idle(never_deployed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing runs, so nothing can be changed: it is as it was, with one failed run more."""
    monkeypatch.chdir(never_deployed)
    return never_deployed


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Somebody else has its lock, so whatever verb is called on it leaves it as it was."""
    with made(tmp_path_factory.mktemp("locked")) as folder:
        lock_of(folder).take(holder_for(ELSEWHERE, "hand", "pdctl lock take", reason="moving racks"))
        yield folder


@pytest.fixture
def held(locked: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(locked)
    return locked


def edit(folder: Path, old: str, new: str, file: str = "fleet.toml") -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def lock_of(folder: Path) -> FleetLock:
    fleet = load_fleet(folder / "fleet.toml")
    return lock_on(fleet.hosts[fleet.control], lambda: LocalTransport("local"))


def asked(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_every_verb_is_known_to_change_the_fleet_or_not() -> None:
    assert {v.name for v in VERBS} <= {*(words.split()[0] for words in CHANGING), *BESIDE, *LOOKING}


@pytest.mark.parametrize("name", CHANGING)
def test_a_verb_that_changes_the_fleet_respects_the_lock(
    held: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (held / "profiles" / "default.toml").read_text()
    code, document = asked(capsys, *CHANGING[name])
    assert code == Exit.LOCKED
    assert re.fullmatch(
        r"The fleet is held by ann@elsewhere by hand for \d+ s: moving racks\.", document["error"]["message"]
    )
    assert (held / "profiles" / "default.toml").read_text() == before
    assert list_runs(load_fleet(held).paths.journal) == []


def test_a_request_is_ended_also_while_another_run_holds_the_fleet(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock_of(fleet).take(holder_for(ELSEWHERE, "hand", "pdctl lock take", reason="moving racks"))
    code, document = asked(capsys, *BESIDE["abort"])
    assert (code, document["error"]["code"]) == (Exit.UNREACHABLE, "unreachable")
    assert [r.command for r in list_runs(load_fleet(fleet).paths.journal)] == ["abort some-request"]


@pytest.mark.parametrize("name", sorted({"abort", "drill", "resume", "restart", "profile"}))
def test_a_verb_that_changes_the_fleet_writes_a_run_also_when_it_fails(
    idle: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = load_fleet(idle).paths.journal
    before = list_runs(journal)
    assert main({**CHANGING, **BESIDE}[name]) != Exit.OK
    run, *rest = list_runs(journal)
    assert rest == before
    assert run.command.split()[0] == name and run.state == "failed" and run.error
    assert lock_of(idle).look() is None


def test_the_end_of_a_pause_is_said_also_where_the_router_cannot_be_asked(
    idle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "--for", "2h"]) == Exit.OK
    assert main(["resume"]) == Exit.UNREACHABLE
    assert "the supervisor acts again" in capsys.readouterr().err


def test_a_manual_lock_from_end_to_end(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lock", "take", "--reason", " "]) == Exit.USAGE
    assert main(["lock", "take", "--reason", "new disks"]) == Exit.OK
    code, document = asked(capsys, "lock", "status")
    holder = document["holder"]
    assert (code, document["state"], holder["reason"]) == (Exit.LOCKED, "manual", "new disks")
    assert (holder["owner"], holder["heartbeat_age_s"]) == (me().owner, None)
    assert main(["lock", "take", "--reason", "me too"]) == Exit.LOCKED
    assert main(["lock", "release"]) == Exit.OK
    assert asked(capsys, "lock", "status") == (
        Exit.OK,
        {"schema": 1, "control": "local", "state": "free", "holder": None},
    )
    assert main(["lock", "release"]) == Exit.OK
    _, record = asked(capsys, "history", "--host", "local")
    assert [line["what"].split(":")[0] for line in record["lines"]] == [
        "took the lock by hand",
        "released",
    ]


def test_the_lock_of_somebody_else_is_released_by_force_and_with_a_word(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock_of(fleet).take(holder_for(ELSEWHERE, "theirs", "pdctl deploy", "r1"))
    assert main(["lock", "release"]) == Exit.LOCKED
    assert main(["lock", "release", "--force"]) == Exit.USAGE, "nobody was there to confirm it"
    assert "stops before its next step" in capsys.readouterr().err
    assert lock_of(fleet).look() is not None
    assert main(["lock", "release", "--force", "--yes"]) == Exit.OK
    assert lock_of(fleet).look() is None
    _, record = asked(capsys, "history", "--host", "local")
    assert [line["what"][:32] for line in record["lines"]] == ["released by force: ann@elsewhere"]


def test_a_stale_lock_is_told_from_a_live_one_and_taken_over_aloud(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = me()
    gone = Operator("bob", mine.host, mine.machine, mine.pid, (mine.start or 0) - 1)
    lock_of(fleet).take(holder_for(gone, "dead", "pdctl deploy", "r1"))
    code, document = asked(capsys, "lock", "status")
    assert (code, document["state"], document["holder"]["run"]) == (Exit.OK, "stale", "r1")
    capsys.readouterr()
    assert main(["down", "--yes"]) == Exit.OK
    assert f"took over the lock of a run that is dead: bob@{mine.host} (pid " in capsys.readouterr().err
    _, record = asked(capsys, "history", "--host", "local")
    (line,) = [r for r in record["lines"] if r["step"] == "lock"]
    assert line["verb"] == "down" and "bob@" in line["what"]
    _, history = asked(capsys, "history", line["run"])
    assert [s["id"] for s in history["runs"][0]["steps"]] == ["lock"]


def start(*argv: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pdctl", *argv]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def until_it_installs(run: subprocess.Popen[str]) -> None:
    """It says so a moment before the step begins."""
    assert run.stderr is not None
    while "install release" not in run.stderr.readline():
        assert run.poll() is None
    journal = load_fleet(Path.cwd()).paths.journal
    end = time.monotonic() + 60
    while not read_run(journal, list_runs(journal)[0].id).steps:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_killed_deploy_is_resumed_and_the_runs_name_each_other(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fleet / "slow").write_text("")
    first = start("deploy", "--wait", "90", "--yes")
    until_it_installs(first)
    first.kill()
    first.communicate(timeout=30)
    (fleet / "slow").unlink()
    _, history = asked(capsys, "history")
    (died,) = history["runs"]
    assert (died["command"], died["state"]) == ("deploy", "died")
    edit(fleet, 'role = "decode"', 'role = "decode"\npages = 64')
    capsys.readouterr()
    assert main(["resume", died["id"], "--yes"]) == Exit.OK
    said = capsys.readouterr()
    assert "again: pdctl deploy --wait 90 --yes\n" in said.err
    assert "fleet.toml is not what it was in that run" in said.err
    assert "profiles/" not in said.err
    assert "took over the lock of a run that is dead" in said.err
    _, history = asked(capsys, "history")
    new, old = history["runs"]
    assert (new["state"], new["resumes"], old["state"]) == ("done", died["id"], "died")
    _, whole = asked(capsys, "history", died["id"])
    run = whole["runs"][0]
    assert run["resumed_by"] == [new["id"]]
    assert run["steps"][-1]["state"] == "died" and "install release" in run["steps"][-1]["what"]
    assert main(["resume", new["id"]]) == Exit.USAGE
    assert "nothing of it is left to do" in capsys.readouterr().err


def test_a_run_that_goes_on_elsewhere_is_not_resumed(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fleet / "slow").write_text("")
    run = start("deploy")
    until_it_installs(run)
    _, history = asked(capsys, "history")
    assert main(["resume", history["runs"][0]["id"]]) == Exit.LOCKED
    assert f"(pid {run.pid})" in capsys.readouterr().err
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == Exit.INTERRUPTED
    (fleet / "slow").unlink()


@pytest.mark.parametrize(
    ("argv", "words"), [(["abort", "x"], "pdctl abort x"), (["drill", "disarm", "decode-0"], "disarm")]
)
def test_one_act_is_not_resumed(
    idle: Path, argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) != Exit.OK
    run = list_runs(load_fleet(idle).paths.journal)[0]
    assert run.command.split()[0] == argv[0]
    assert main(["resume", run.id]) == Exit.USAGE
    said = capsys.readouterr().err
    assert words in said and "cannot be resumed" in said


def test_a_run_is_waited_for_and_then_it_is_our_turn(fleet: Path) -> None:
    (fleet / "slow").write_text("")
    first = start("deploy")
    until_it_installs(first)
    second = start("restart", "decode-0", "--yes", "--lock-wait", "120")
    assert second.stderr is not None
    said = ""
    while "Waiting up to" not in said:
        said = second.stderr.readline()
        assert said, "the second did not wait"
    assert f"(pid {first.pid})" in said
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    _, rest = second.communicate(timeout=120)
    assert "The fleet is held" not in rest
    runs = list_runs(load_fleet(fleet).paths.journal)
    assert [r.command for r in runs] == ["restart decode-0", "deploy"]
    (fleet / "slow").unlink()


def test_everything_is_written_down_and_no_secret_is(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fleet's tokens travel to the hosts; nothing that keeps records may have them."""
    assert main(["deploy", "--yes"]) == Exit.OK
    assert main(["restart", "router", "--yes"]) == Exit.OK
    assert main(["profile", "set", "default", "PD_QUEUE_TIMEOUT=350", "--reason", "why", "--live"]) in (
        Exit.OK,
        Exit.PARTIAL,
    )
    assert main(["down", "--yes"]) == Exit.OK
    _, history = asked(capsys, "history")
    ids = {r["command"]: r["id"] for r in history["runs"]}
    _, whole = asked(capsys, "history", ids["deploy"])
    steps = {s["id"]: s for s in whole["runs"][0]["steps"]}
    starts = [s for id, s in steps.items() if "decode-0" in id and s["commands"] and s["host"] == "local"]
    assert starts and all(s["state"] == "done" and s["seconds"] > 0 for s in steps.values())
    assert any("put " in c["command"] for s in steps.values() for c in s["commands"])
    _, record = asked(capsys, "history", "--host", "local", "-n", "200")
    verbs = {line["verb"] for line in record["lines"]}
    assert {"deploy", "restart", "down", "profile"} <= verbs
    assert {line["run"] for line in record["lines"]} <= set(ids.values())
    assert main(["history", ids["deploy"]]) == Exit.OK
    text = capsys.readouterr().out
    paths = load_fleet(fleet).paths
    kept = [*paths.state.glob("journal.db*"), *paths.state.rglob("audit.jsonl")]
    assert len(kept) >= 2
    for token in (paths.token, paths.drill_token):
        secret = token.read_text().strip()
        assert secret not in text and secret not in json.dumps(whole)
        for path in kept:
            assert secret.encode() not in path.read_bytes(), path


def test_history_asks_one_question_at_a_time(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--host", "local", "--prune", "3"]) == Exit.USAGE
    assert main(["history", "--host", "loca"]) == Exit.USAGE
    assert "Did you mean local?" in capsys.readouterr().err
    assert main(["down", "--yes"]) == Exit.OK
    code, document = asked(capsys, "history", "--prune", "0")
    assert (code, document["pruned"]) == (Exit.OK, 1)
    (fleet / ".pdctl" / "journal").mkdir()
    assert main(["history"]) == Exit.OK
    said = capsys.readouterr().out
    assert "No run has changed this fleet yet." in said and "earlier version" in said


def test_nothing_that_runs_is_stopped_without_a_yes_where_nobody_can_be_asked(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rule for every verb that restarts or stops; pytest's stdin is no terminal."""
    for argv in (["restart", "--co", "--yes"], ["restart", "decode-0", "--yes"]):
        assert main(argv) == Exit.USAGE
        assert "was never deployed to local, so there is nothing to restart." in capsys.readouterr().err
    assert main(["down"]) == Exit.OK, "nothing runs, so there is nothing to ask"
    assert main(["deploy"]) == Exit.OK, "nothing is restarted by a first deploy"
    before = lives(fleet)
    edit(fleet, 'role = "decode"', 'role = "decode"\npages = 64')
    for argv in (["deploy"], ["restart", "decode-0"], ["restart", "--co"], ["down"]):
        capsys.readouterr()
        assert main(argv) == Exit.USAGE, argv
        said = capsys.readouterr().err
        assert "There is no terminal to ask on." in said and "Add --yes to go on." in said, argv
    assert lives(fleet) == before


def lives(folder: Path) -> dict[str, int | None]:
    with Context(load_fleet(folder / "fleet.toml")) as ctx:
        return {name: status.pid for name, status in ctx.units("local").status().items()}


def test_an_engine_that_ends_in_every_life_ends_the_wait_for_it_in_its_own_words(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its supervisor would go on for minutes, and a deadline would only say that it answers nothing."""
    assert main(["deploy"]) == Exit.OK
    root = Path(load_fleet(fleet).host_paths("local").root)
    (root / "env" / "prefill-0.behave").write_text("exit=70")
    capsys.readouterr()
    assert main(["restart", "--co", "--yes"]) == Exit.FINDINGS
    said = capsys.readouterr().out
    assert "prefill-0 did not start: prefill-0 cannot start: the test wants it so (backoff: " in said


def test_every_stage_of_a_co_restart_is_a_step(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A prefill does not come back, so it fails; how far it came is written down."""
    assert main(["deploy"]) == Exit.OK
    root = Path(load_fleet(fleet).host_paths("local").root)
    (root / "env" / "prefill-0.behave").write_text("exit=74")
    capsys.readouterr()
    assert main(["restart", "--co", "--yes"]) == Exit.FINDINGS
    said = capsys.readouterr().out
    assert "prefill-0 did not start: prefill-0 cannot start: the test wants it so (failed: " in said
    run = list_runs(load_fleet(fleet).paths.journal)[0]
    assert (run.command, run.state, run.again) == (
        "restart --co a",
        "failed",
        ("restart", "--co", "a", "--yes"),
    )
    steps = read_run(load_fleet(fleet).paths.journal, run.id).steps
    stages = [s for s in steps if s.host == "fleet"]
    assert stages[0].what == "cell a: hold admissions"
    assert [s.state for s in stages] == ["done"] * (len(stages) - 1) + ["failed"]
    assert stages[-1].detail and stages[-1].detail in run.error
    assert any(s.host == "local" and s.what == "router: hold" for s in steps)
