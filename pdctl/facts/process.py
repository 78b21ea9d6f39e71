"""What the operating system says about one unit's processes, through psutil.

`status` is psutil's word; "stopped" is a SIGSTOP (state T). The facts are read without signals and
cost milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import psutil

from pdctl.facts.missing import Missing

STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
OURS = ("PD_", "UCX_", "NCCL_", "OMP_")


@dataclass(frozen=True)
class Child:
    pid: int
    status: str
    command: str

    @property
    def stopped(self) -> bool:
        return self.status in STOPPED


@dataclass(frozen=True)
class Process:
    """`environ` holds only PD_*, UCX_*, NCCL_* and OMP_* variables; Missing when it is not ours to read."""

    pid: int
    status: str
    started_at: float
    environ: dict[str, str] | Missing
    children: tuple[Child, ...] = field(default=())

    @property
    def stopped(self) -> tuple[int, ...]:
        """Pids of this process and its children that are stopped."""
        own = (self.pid,) if self.status in STOPPED else ()
        return own + tuple(c.pid for c in self.children if c.stopped)


def _environ(process: psutil.Process) -> dict[str, str] | Missing:
    try:
        return {k: v for k, v in process.environ().items() if k.startswith(OURS)}
    except psutil.AccessDenied:
        return Missing("the process belongs to another user")
    except (psutil.NoSuchProcess, OSError) as error:
        return Missing(f"the process's environment cannot be read: {error}")


def _children(process: psutil.Process) -> tuple[Child, ...]:
    found = []
    for child in process.children(recursive=True):
        try:
            command = " ".join(child.cmdline()[:4])
            found.append(Child(child.pid, child.status(), command))
        except psutil.Error:
            continue  # it ended between the listing and the reading
    return tuple(found)


def probe(pid: int) -> Process | Missing:
    """Facts of the process `pid`, or why there are none."""
    try:
        process = psutil.Process(pid)
        status = process.status()
        if status == psutil.STATUS_ZOMBIE:
            return Missing(f"process {pid} has ended and was not collected")
        return Process(pid, status, process.create_time(), _environ(process), _children(process))
    except psutil.NoSuchProcess:
        return Missing(f"process {pid} is gone")
    except psutil.AccessDenied:
        return Missing(f"process {pid} belongs to another user")
