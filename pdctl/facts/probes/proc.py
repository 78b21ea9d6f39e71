"""Host tool: /proc as a few functions.

`denied` collects what only root may read, so that the caller knows that asking as root would tell more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
_EXITING = 4  # PF_EXITING among the flags of /proc/PID/stat
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
}
denied: list[str] = []


def read_bytes(path: str) -> bytes:
    """b"" when it cannot be read; noted in `denied` when root could."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except PermissionError:
        denied.append(path)
    except OSError:
        pass
    return b""


def read_text(path: str) -> str:
    return read_bytes(path).decode("utf-8", "replace")


def read_line(path: str) -> str:
    return read_text(path).strip()


def pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def stat_of(pid: int) -> Any:
    """{state, parent, start, spent, ending}: ticks since boot and of CPU time; None when there is no such
    process.
    """
    text = read_text(f"/proc/{pid}/stat")
    # The command's name is in brackets and may hold anything, brackets included.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    spent = int(fields[11]) + int(fields[12])
    ending = fields[0] in "ZX" or bool(int(fields[6]) & _EXITING)
    return {
        "state": fields[0],
        "parent": int(fields[1]),
        "start": int(fields[19]),
        "spent": spent,
        "ending": ending,
    }


def process_table() -> dict[int, dict[str, Any]]:
    """Every process that lives now."""
    return {pid: stat for pid in pids() if (stat := stat_of(pid)) is not None}


def started_at(start: int) -> float:
    """Unix seconds of a start in ticks since boot."""
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - start / TICKS)


def family(root: int, table: dict[int, dict[str, Any]]) -> list[int]:
    """`root` and everything below it."""
    found = [root] if root in table else []
    for pid in found:
        found += [child for child, stat in table.items() if stat["parent"] == pid and child not in found]
    return found


def parents(pid: int, table: dict[int, dict[str, Any]]) -> Iterator[int]:
    """From its parent upwards, without init."""
    while pid in table and (pid := table[pid]["parent"]) > 1:
        yield pid


def command_of(pid: int, words: int = 4) -> str:
    """The start of its command line; a kernel thread's or dying process's name in brackets."""
    argv = [w for w in read_text(f"/proc/{pid}/cmdline").split("\0") if w]
    return " ".join(argv[:words])[:160] if argv else f"[{read_line(f'/proc/{pid}/comm')}]"


def service_of(pid: int) -> str:
    """The systemd service that a process belongs to, "" for none."""
    for line in read_text(f"/proc/{pid}/cgroup").splitlines():
        for part in reversed(line.rpartition(":")[2].split("/")):
            if part.endswith(".service") and not part.startswith("user@"):
                return part
    return ""
