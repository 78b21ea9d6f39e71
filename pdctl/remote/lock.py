"""One run changes a fleet at a time. The lock is a file that says who holds it, and since when.

A holder refreshes its heartbeat. On the same machine a holder whose process is gone is dead at once; on
another machine it is dead when its heartbeat is older than STALE. A dead holder's lock is taken over.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pdctl.errors import LockedError
from pdctl.procs import alive, start_time

BEAT = 5.0
STALE = 60.0


@dataclass(frozen=True)
class Holder:
    """`start` is the process's start in ticks since boot, so that a reused pid is not taken for it."""

    owner: str
    host: str
    pid: int
    start: int | None
    since: float
    command: str
    heartbeat: float

    def dead(self, now: float) -> bool:
        if self.host == socket.gethostname():
            return not alive(self.pid, self.start)
        return now - self.heartbeat > STALE

    def words(self, now: float) -> str:
        return f"{self.owner}@{self.host} (pid {self.pid}) for {now - self.since:.0f} s: {self.command}"


def read_holder(path: Path) -> Holder | None:
    """Who holds the lock; None when nobody does, or when the file is torn and so nobody's."""
    try:
        data = json.loads(path.read_text())
        data.pop("schema", None)
        return Holder(**data)
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def fleet_lock(path: Path, command: str, say: Callable[[str], None]) -> Iterator[Holder]:
    """Hold the fleet; LockedError names a living holder. The lock is released however the block ends."""
    mine = _take(path, command, say)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, mine, stop), daemon=True, name="lock-heartbeat")
    beat.start()
    try:
        yield mine
    finally:
        stop.set()
        beat.join(BEAT)
        with _guard(path):
            if _is_mine(read_holder(path), mine):
                path.unlink(missing_ok=True)


def _take(path: Path, command: str, say: Callable[[str], None]) -> Holder:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = time.time()
    pid = os.getpid()
    mine = Holder(getpass.getuser(), socket.gethostname(), pid, start_time(pid), now, command, now)
    with _guard(path):
        holder = read_holder(path)
        if holder is not None:
            if not holder.dead(now):
                raise LockedError(
                    "locked",
                    f"The fleet is held by {holder.words(now)}.",
                    "Wait until that run has ended; `pdctl history` shows it.",
                )
            say(f"taking over the lock of a run that is dead: {holder.words(now)}")
        _write(path, mine)
    return mine


def _beat(path: Path, mine: Holder, stop: threading.Event) -> None:
    while not stop.wait(BEAT):
        with _guard(path):
            if not _is_mine(read_holder(path), mine):
                return
            _write(path, Holder(**{**asdict(mine), "heartbeat": time.time()}))


def _is_mine(holder: Holder | None, mine: Holder) -> bool:
    return holder is not None and (holder.host, holder.pid, holder.since) == (mine.host, mine.pid, mine.since)


def _write(path: Path, holder: Holder) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"schema": 1, **asdict(holder)}, indent=1) + "\n")
    os.replace(temporary, path)


@contextmanager
def _guard(path: Path) -> Iterator[None]:
    """Read-and-write of the lock file as one act; held for milliseconds."""
    fd = os.open(path.with_suffix(".guard"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
