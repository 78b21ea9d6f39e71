"""A run is kept however it ended, with its steps and what was executed in each."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, LockedError, PdctlError
from pdctl.exits import Exit
from pdctl.remote import journal_retention
from pdctl.remote.journal import Call, Journal, Links
from pdctl.remote.journal_read import Run, last_note, list_runs, prune_runs, read_run
from pdctl.remote.recording import Executed


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / ".pdctl" / "journal.db"


def executed(host: str, command: str, rc: int | None = 0) -> Executed:
    return Executed(host, command, rc, 0.25, 10, time.time())


def test_a_run_with_its_steps_can_be_read_back(db: Path) -> None:
    with Journal(
        db, Call("deploy", ("deploy", "--yes")), links=Links({"fleet.toml": "ab"}, "old")
    ) as journal:
        with journal.doing("local/start/a", "local", "start a"):
            assert [s.state for s in read_run(db, journal.id).steps] == ["running"]
        journal.note("measured", seconds=3.0)
        assert read_run(db, journal.id).state == "running"
    run = read_run(db, journal.id)
    assert (run.state, run.command, run.again) == ("done", "deploy", ("deploy", "--yes"))
    assert (run.inputs, run.resumes, run.error) == ({"fleet.toml": "ab"}, "old", "")
    assert [(s.id, s.host, s.what, s.state) for s in run.steps] == [
        ("local/start/a", "local", "start a", "done")
    ]
    assert [(n.what, n.data) for n in run.notes] == [("measured", {"seconds": 3.0})]


def test_failed_and_interrupted_runs_are_kept(db: Path) -> None:
    with pytest.raises(PdctlError), Journal(db, "deploy"):
        raise PdctlError("x", "It broke.")
    with pytest.raises(KeyboardInterrupt), Journal(db, "down"):
        raise KeyboardInterrupt
    with pytest.raises(PdctlError), Journal(db, "rollback"):
        raise PdctlError("declined", "Nothing was changed.", exit=Exit.INTERRUPTED)
    with pytest.raises(ZeroDivisionError), Journal(db, "abort"):
        raise ZeroDivisionError("by us")
    assert {(r.command, r.state, r.error) for r in list_runs(db)} == {
        ("deploy", "failed", "It broke."),
        ("down", "interrupted", ""),
        ("rollback", "interrupted", "Nothing was changed."),
        ("abort", "failed", "ZeroDivisionError: by us"),
    }


def test_a_run_that_reports_its_failure_is_not_called_done(db: Path) -> None:
    with Journal(db, "restart --co a") as journal:
        journal.ends("interrupted", "start decodes: interrupted")
        with journal.doing("start", "fleet", "start decodes") as step:
            step.failed("no port")
    run = read_run(db, journal.id)
    assert (run.state, run.error) == ("interrupted", "start decodes: interrupted")
    assert [(s.state, s.detail) for s in run.steps] == [("failed", "no port")]


def test_a_command_belongs_to_the_step_that_executed_it(db: Path) -> None:
    with Journal(db, "deploy") as journal:
        journal.command(executed("h1", "look"))
        with journal.doing("canary", "fleet", "canary", changes=False):
            with journal.doing("h1/start", "h1", "start on h1"):
                journal.command(executed("h1", "start"))
                journal.command(executed("h2", "ask the other"))
            journal.command(executed("h2", "curl"))
        journal.command(executed("h1", "prune"))
        journal.step("h1/prune", "h1", "prune", "done", 5.0)
    run = read_run(db, journal.id)
    assert {s.id: [c.command for c in s.commands] for s in run.steps} == {
        "canary": ["ask the other", "curl"],
        "h1/start": ["start"],
        "h1/prune": ["look", "prune"],
    }
    assert run.commands == ()


def test_hosts_in_parallel_keep_their_commands_apart(db: Path) -> None:
    """Also two steps on one host, each on its own thread."""
    begun = threading.Barrier(3)
    with Journal(db, "deploy") as journal:

        def work(id: str, host: str) -> None:
            with journal.doing(id, host, id):
                begun.wait(20)
                journal.command(executed(host, f"of {id}"))
                begun.wait(20)

        jobs = [("one", "h1"), ("two", "h1"), ("three", "h2")]
        threads = [threading.Thread(target=work, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    steps = read_run(db, journal.id).steps
    assert {s.id: [c.command for c in s.commands] for s in steps} == {
        "one": ["of one"],
        "two": ["of two"],
        "three": ["of three"],
    }


def test_polling_is_one_line_that_counts(db: Path) -> None:
    with Journal(db, "deploy") as journal, journal.doing("ready", "fleet", "wait"):
        for _ in range(5):
            journal.command(executed("h1", "systemctl show"))
            journal.command(executed("h2", "systemctl show"))
        journal.command(executed("h1", "systemctl show", 1))
    (step,) = read_run(db, journal.id).steps
    assert [(c.host, c.rc, c.times, c.seconds, c.bytes) for c in step.commands] == [
        ("h1", 0, 5, 1.25, 50),
        ("h2", 0, 5, 1.25, 50),
        ("h1", 1, 1, 0.25, 10),
    ]


def test_no_step_begins_without_the_lock(db: Path) -> None:
    def guard() -> None:
        raise LockedError("lock_lost", "Gone.")

    with pytest.raises(LockedError), Journal(db, "deploy", links=Links(guard=guard)) as journal:  # noqa: SIM117
        with journal.doing("a", "h1", "start"):
            pytest.fail("the step was begun")
    run = read_run(db, journal.id)
    assert (run.state, run.error, run.steps) == ("failed", "Gone.", ())


KILLED = """
import sys, time
from pathlib import Path
from pdctl.remote.journal import Journal
from pdctl.remote.recording import Executed
with Journal(Path(sys.argv[1]), "deploy") as journal:
    with journal.doing("local/release", "local", "install"):
        journal.command(Executed("local", "tar", 0, 0.1, 1, time.time()))
    with journal.doing("local/start/a", "local", "start a"):
        journal.command(Executed("local", "start", 0, 0.1, 1, time.time()))
        print(journal.id, flush=True)
        sys.stdin.readline()
"""


def test_a_killed_run_died_and_shows_where_it_was(db: Path) -> None:
    argv = [sys.executable, "-c", KILLED, str(db)]
    run = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    id = run.stdout.readline().strip()
    assert read_run(db, id).state == "running"
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=20)
    found = read_run(db, id)
    assert (found.state, found.seconds) == ("died", None)
    assert [(s.id, s.state, [c.command for c in s.commands]) for s in found.steps] == [
        ("local/release", "done", ["tar"]),
        ("local/start/a", "died", ["start"]),
    ]
    assert [r.state for r in list_runs(db)] == ["died"]


def test_a_run_of_before_a_reboot_died(db: Path) -> None:
    Journal(db, "deploy")
    change(db, "UPDATE runs SET machine = 'an earlier boot pid:[4026531836]', pid = 1, start = 1")
    assert [r.state for r in list_runs(db)] == ["died"]
    change(db, "UPDATE runs SET host = 'another machine'")
    assert [r.state for r in list_runs(db)] == ["running"], "of another machine nothing is known"


def change(db: Path, sql: str) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute(sql)


MANY = """
import sys
from pathlib import Path
from pdctl.remote.journal import Journal
sys.stdin.readline()
for n in range(5):
    with Journal(Path(sys.argv[1]), f"run {n}") as journal:
        for step in range(10):
            with journal.doing(f"s{step}", "local", "work"):
                journal.note("n", n=n)
"""


def test_many_processes_write_at_once_and_nothing_is_lost(db: Path) -> None:
    """The file itself is made by all of them at once, too."""
    argv = [sys.executable, "-c", MANY, str(db)]
    runs = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    said = [run.communicate("\n", timeout=120)[1] for run in runs]
    assert said == ["", "", "", ""] and [run.returncode for run in runs] == [0] * 4
    whole: list[Run] = [read_run(db, r.id) for r in list_runs(db)]
    assert len(whole) == 20
    assert all(r.state == "done" and len(r.steps) == 10 and len(r.notes) == 10 for r in whole)
    assert all(s.state == "done" for r in whole for s in r.steps)


def test_the_journal_is_private(db: Path) -> None:
    with Journal(db, "deploy"):
        modes = {p.name: p.stat().st_mode & 0o777 for p in db.parent.iterdir()}
    assert modes and set(modes.values()) == {0o600}
    assert db.parent.stat().st_mode & 0o777 == 0o700


def test_an_unknown_run_is_a_sentence(db: Path) -> None:
    with pytest.raises(ConfigError, match="There is no run x"):
        read_run(db, "x")
    assert list_runs(db) == [] and not db.exists(), "reading makes no journal"


def test_a_journal_that_cannot_be_read_is_a_sentence(db: Path, tmp_path: Path) -> None:
    db.parent.mkdir()
    db.write_text("this is no database, and long enough to be taken for a damaged one " * 20)
    with pytest.raises(ConfigError, match="cannot be used: file is not a database") as caught:
        Journal(db, "deploy")
    assert "Move it aside" in caught.value.hint
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be used: .*/file: File exists"):
        Journal(tmp_path / "file" / "journal.db", "deploy")


def test_a_journal_in_a_folder_that_can_only_be_read_is_read(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(db, "deploy"):
        pass
    monkeypatch.setattr("pdctl.remote.journal_store.os.access", lambda path, mode: False)
    before = sorted(db.parent.iterdir())
    assert [run.command for run in list_runs(db)] == ["deploy"]
    assert sorted(db.parent.iterdir()) == before
    with pytest.raises(ConfigError, match="readonly database") as caught, Journal(db, "down"):
        pass
    assert caught.value.hint == "", "there is nowhere to move it"


def test_the_journal_of_a_newer_pdctl_is_left_alone(db: Path) -> None:
    with Journal(db, "deploy"):
        pass
    change(db, "PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match=r"a newer pdctl wrote it \(schema 99\)"):
        list_runs(db)


def test_trouble_with_the_journal_is_said_once_and_ends_no_run(db: Path) -> None:
    said: list[str] = []
    with Journal(db, "deploy", links=Links(say=said.append)) as journal:
        change(db, "DROP TABLE steps")
        for name in ("a", "b"):
            with journal.doing(name, "local", name):
                pass
    assert len(said) == 1 and said[0].startswith("this run is not recorded any more")


def test_old_runs_are_forgotten_when_asked(db: Path) -> None:
    for command in ("old", "new"):
        with Journal(db, command) as journal, journal.doing("s", "local", "work"):
            journal.command(executed("local", "x"))
    Journal(db, "still running")
    change(db, "UPDATE runs SET started = started - 10 * 86400 WHERE command IN ('old', 'still running')")
    assert prune_runs(db, 5) == 1
    assert {r.command for r in list_runs(db)} == {"new", "still running"}
    with sqlite3.connect(db) as connection:
        (left,) = connection.execute("SELECT count(DISTINCT run) FROM commands").fetchone()
    assert left == 1


def test_every_run_forgets_what_is_too_old_or_too_many_and_no_newest_deploy(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_retention.retain, "__defaults__", (5, 400.0))
    for command in ("deploy --yes", *(f"restart --co c{n}" for n in range(8))):
        with Journal(db, command) as journal, journal.doing("s", "local", "work"):
            journal.command(executed("local", "x"))
            journal.note("deployment", id=command)
    kept = [r.command for r in list_runs(db)]
    assert kept == [*(f"restart --co c{n}" for n in range(7, 2, -1)), "deploy --yes"]
    change(db, "UPDATE runs SET started = started - 500 * 86400 WHERE command LIKE 'restart%'")
    with Journal(db, "restart a"):
        pass
    assert [r.command for r in list_runs(db)] == ["restart a", "deploy --yes"]
    with sqlite3.connect(db) as connection:
        (left,) = connection.execute("SELECT count(DISTINCT run) FROM commands").fetchone()
    assert left == 1 and last_note(db, "deployment") == {"id": "restart --co c7"}


def test_a_run_names_those_that_went_on_with_it(db: Path) -> None:
    with Journal(db, "deploy") as first:
        pass
    with Journal(db, "deploy", links=Links(resumes=first.id)) as second:
        pass
    assert read_run(db, first.id).resumed_by == (second.id,)
