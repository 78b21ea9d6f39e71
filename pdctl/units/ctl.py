"""`python -m pdctl.units.ctl VERB DIR [NAME …]`: the process backend's hands on a host.

VERB is start, stop, end (a stop that waits for nothing) or status; DIR holds the unit files. Prints one JSON
object NAME -> UnitStatus. Exit 1 with a sentence on stderr when it could not be done.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from pdctl import procs
from pdctl.units.keeper import ALREADY_KEPT
from pdctl.units.notify import remove_socket
from pdctl.units.record import judge, orphans, read_record
from pdctl.units.spec import UnitSpec, UnitStatus

START_DEADLINE = 15.0
# Of a unit whose own cannot be read.
STOP_TIMEOUT = 30.0
# What the keeper itself needs on top of the unit's own stop timeout.
STOP_MARGIN = 15.0


def status(folder: Path, name: str) -> UnitStatus:
    file = folder / f"{name}.json"
    if not file.exists():
        return UnitStatus(name, "missing", "not installed")
    return judge(name, read_record(_run_file(file)[0]))


def _run_file(file: Path) -> tuple[Path, float]:
    """A unit's state file and stop timeout, also when its unit file is damaged: it must be stoppable."""
    try:
        spec = UnitSpec.from_json(file.read_text())
    except (ValueError, TypeError, KeyError):
        return file.parents[1] / "run" / file.name, STOP_TIMEOUT
    return Path(spec.run), spec.stop_timeout


def start(folder: Path, name: str) -> UnitStatus:
    """Start a keeper, unless one has the unit already; returns once the process exists or has failed."""
    file = folder / f"{name}.json"
    if not file.exists():
        raise RuntimeError(f"{name} is not installed: there is no {file}")
    spec = UnitSpec.from_json(file.read_text())
    if keeper_of(Path(spec.run)) is not None:
        return status(folder, name)
    Path(spec.log).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(spec.log, "ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "pdctl.units.keeper", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
        )
    end = time.monotonic() + START_DEADLINE
    while time.monotonic() < end:
        record = read_record(Path(spec.run))
        ended = keeper.poll()
        if ended == ALREADY_KEPT:
            return status(folder, name)
        if record and record.keeper_pid == keeper.pid and (record.child_pid or record.state == "failed"):
            return status(folder, name)
        if ended is not None:
            return status(folder, name)
        time.sleep(0.02)
    raise RuntimeError(f"{name}: its keeper did not start a process in {START_DEADLINE:g} s")


def end(folder: Path, name: str) -> UnitStatus:
    return stop(folder, name, at_once=True)


def stop(folder: Path, name: str, at_once: bool = False) -> UnitStatus:
    """Through the keeper; without one, whatever is left of the unit is ended here."""
    file = folder / f"{name}.json"
    if not file.exists():
        return UnitStatus(name, "missing", "not installed")
    run, stop_timeout = _run_file(file)
    keeper = keeper_of(run)
    if keeper is not None:
        _signal(keeper, signal.SIGTERM)
        if at_once:
            _kill(run)
        if not _gone(run, stop_timeout + STOP_MARGIN):
            _signal(keeper, signal.SIGKILL)
            _gone(run, 5.0)
    record = read_record(run)
    if record is None:
        return status(folder, name)
    remove_socket(record.notify_dir)
    if record.child_pid is not None and orphans(record):
        _end_orphans(record.child_pid, record.mark, 0.0 if at_once else stop_timeout)
        record.state, record.reason, record.since = "inactive", "stopped", time.time()
        record.child_pid = record.child_start = None
        record.write(run)
    elif record.state not in ("inactive", "failed"):
        record.state, record.reason, record.since = "inactive", "stopped", time.time()
        record.write(run)
    elif record.state == "failed" and record.wanted:
        record.wanted = False  # why it failed stays known
        record.write(run)
    return status(folder, name)


def _kill(run: Path) -> None:
    """What the unit's process is now: its keeper has been told to stop, and brings nothing back."""
    record = read_record(run)
    if record is not None and record.child_pid is not None:
        procs.kill_all(record.child_pid, record.mark, 10.0)


def _end_orphans(leader: int, mark: str, timeout: float) -> None:
    for pid in procs.session_members(leader, mark):
        if pid == leader:
            _signal(pid, signal.SIGTERM)
    end = time.monotonic() + timeout
    while leader in procs.session_members(leader, mark) and time.monotonic() < end:
        time.sleep(0.05)
    left = procs.kill_all(leader, mark, 10.0)
    if left:
        raise RuntimeError(f"processes {left} outlive SIGKILL")


def keeper_of(run: Path) -> int | None:
    """Pid of the keeper that holds the unit's lock now."""
    try:
        fd = os.open(run.with_suffix(".lock"), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        pid, _, start = os.pread(fd, 100, 0).decode().strip().partition(" ")
        # Held and still empty: the keeper has taken it this instant and will have written it at once.
        return int(pid) if pid and procs.alive(int(pid), int(start)) else None
    finally:
        os.close(fd)


def _gone(run: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while keeper_of(run) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.03)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


VERBS = {"start": start, "stop": stop, "end": end, "status": status}


def main(argv: list[str]) -> int:
    verb, folder = VERBS[argv[0]], Path(argv[1])
    names = argv[2:] or sorted(p.stem for p in folder.glob("*.json"))
    try:
        print(json.dumps({name: asdict(verb(folder, name)) for name in names}))
    except (RuntimeError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
