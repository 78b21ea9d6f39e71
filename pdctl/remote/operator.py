"""Who runs pdctl, and whether a process named by a lock or a run still lives."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from pdctl.procs import start_time


@dataclass(frozen=True)
class Operator:
    """One process of pdctl. `machine` tells whose pids can be compared; "" where that cannot be told.

    `start` is the process's start in ticks since boot, so that a reused pid is not taken for it.
    """

    owner: str
    host: str
    machine: str
    pid: int
    start: int | None

    @property
    def name(self) -> str:
        return f"{self.owner}@{self.host}"


def me() -> Operator:
    pid = os.getpid()
    return Operator(_owner(), socket.gethostname(), machine(), pid, start_time(pid))


def machine() -> str:
    """This boot and this pid namespace: two hosts may share a name, two containers a boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def gone(where: str, pid: int | None, start: int | None) -> bool | None:
    """Whether that process of machine `where` has ended; None when that cannot be seen from here."""
    if not where or where != machine() or pid is None or start is None:
        return None
    now = start_time(pid)
    if now is not None:
        return now != start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # Another user's process, on a machine that hides those.
        return None
    return True  # a zombie


def _owner() -> str:
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
