"""One run at a time; a held lock names its holder, a dead holder's is taken over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from pdctl.errors import LockedError
from pdctl.exits import Exit
from pdctl.remote.lock import STALE, Holder, fleet_lock, read_holder

HOLD = """
import sys, time
from pathlib import Path
from pdctl.remote.lock import fleet_lock
with fleet_lock(Path(sys.argv[1]), "pdctl deploy", print):
    print("held", flush=True)
    time.sleep(600)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    child = hold(tmp_path / "lock")
    try:
        with pytest.raises(LockedError) as caught, fleet_lock(tmp_path / "lock", "pdctl down", print):
            pass
        assert f"(pid {child.pid})" in caught.value.message
        assert "pdctl deploy" in caught.value.message
        assert caught.value.exit is Exit.LOCKED
    finally:
        child.kill()
        child.wait()


def test_a_dead_holder_is_told_and_taken_over(tmp_path: Path) -> None:
    child = hold(tmp_path / "lock")
    child.send_signal(signal.SIGKILL)
    child.wait()
    said: list[str] = []
    with fleet_lock(tmp_path / "lock", "pdctl down", said.append) as mine:
        assert mine.pid == os.getpid()
    assert len(said) == 1 and f"pid {child.pid}" in said[0] and "dead" in said[0]


def test_a_frozen_holder_on_this_machine_is_alive(tmp_path: Path) -> None:
    child = hold(tmp_path / "lock")
    try:
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(LockedError), fleet_lock(tmp_path / "lock", "pdctl down", print):
            pass
    finally:
        child.kill()
        child.wait()


def other_host(path: Path, heartbeat: float) -> None:
    holder = Holder("ann", "elsewhere", os.getpid(), 1, heartbeat - 5, "pdctl deploy", heartbeat)
    path.write_text(json.dumps({"schema": 1, **asdict(holder)}))


def test_a_holder_elsewhere_is_judged_by_its_heartbeat(tmp_path: Path) -> None:
    other_host(tmp_path / "lock", time.time())
    with (
        pytest.raises(LockedError, match="ann@elsewhere"),
        fleet_lock(tmp_path / "lock", "pdctl down", print),
    ):
        pass
    other_host(tmp_path / "lock", time.time() - STALE - 10)
    with fleet_lock(tmp_path / "lock", "pdctl down", print):
        pass
    assert read_holder(tmp_path / "lock") is None


def test_the_lock_is_released_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), fleet_lock(tmp_path / "lock", "pdctl deploy", print):
        raise ZeroDivisionError
    assert read_holder(tmp_path / "lock") is None


def test_a_torn_lock_file_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"owner": "a')
    with fleet_lock(tmp_path / "lock", "pdctl deploy", print) as mine:
        assert read_holder(tmp_path / "lock") == mine


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    race = """
import sys, time
from pathlib import Path
from pdctl.errors import LockedError
from pdctl.remote.lock import fleet_lock
sys.stdin.readline()
try:
    with fleet_lock(Path(sys.argv[1]), "pdctl deploy", lambda text: None):
        print("got", flush=True); sys.stdin.readline()
except LockedError:
    print("locked", flush=True)
"""
    argv = [sys.executable, "-c", race, str(tmp_path / "lock")]
    runs = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()
    said = [run.stdout.readline().strip() for run in runs if run.stdout is not None]
    for run in runs:
        run.communicate("\n", timeout=20)
    assert sorted(said) == ["got", "locked", "locked", "locked"]
