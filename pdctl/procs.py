"""Processes by identity, not by number: a pid with its start time, and everything of one session.

Read from /proc, because the keeper must run on hosts with nothing but Python.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

# Set for every process of a unit; tells its left-over processes from a stranger's with the same numbers.
MARK = "PDCTL_UNIT"


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which `pid` started; None when there is no such process (or a zombie)."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def alive(pid: int | None, start: int | None) -> bool:
    """Whether that very process still lives."""
    return pid is not None and start is not None and start_time(pid) == start


def session_members(leader: int, mark: str) -> list[int]:
    """Pids in the session or process group that `leader` led, and marked as this unit's.

    One that has overwritten its environment, as servers do that set their process title, bears no mark any
    more: it is taken for this unit's as long as nobody else's process is in that session.
    """
    marked, wiped, strangers = [], [], 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        fields = _stat(int(entry))
        if fields is None or fields[0] in "ZX" or leader not in (int(fields[2]), int(fields[3])):
            continue
        found = _marks(int(entry))
        if mark in found:
            marked.append(int(entry))
        elif found == [""] and _ours(int(entry)):
            wiped.append(int(entry))
        else:
            strangers += 1
    return marked if strangers else marked + wiped


def kill_all(leader: int, mark: str, deadline: float) -> list[int]:
    """SIGKILL everything of that session until nothing is left; the pids that outlive the deadline."""
    end = time.monotonic() + deadline
    while True:
        members = session_members(leader, mark)
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not members or time.monotonic() > end:
            return members
        time.sleep(0.02)


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (state, ppid, pgrp, session, ...)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name is in brackets and may hold anything, brackets included.
    return text.rpartition(")")[2].split()


def _marks(pid: int) -> list[str]:
    """Values of the mark in its environment; [""] when a title was written over its beginning."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return []
    start = f"{MARK}=".encode()
    found = [e[len(start) :].decode() for e in environ.split(b"\0") if e.startswith(start)]
    return found or ([""] if environ[:1] in (b"", b"\0") else [])


def _ours(pid: int) -> bool:
    """Whether it runs as the same user."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return False
