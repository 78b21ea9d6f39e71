"""One unit's processes, as the host tool reads them from /proc.

`status` is a word for the kernel's letter; "stopped" is a SIGSTOP (state T). The facts are read without
signals and cost milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pdctl.facts.missing import Missing, known
from pdctl.facts.probes.process import veiled
from pdctl.facts.unit import Unit

STOPPED = ("stopped", "tracing-stop")
UNREAD = Missing("it was not read")


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
    """`environ` holds the variables of engines and their libraries, secrets as digests; Missing when it is
    not ours to read. `memlock` is the soft limit in bytes, None for unlimited; `cpus` and `mems` are what it
    may use, as the kernel lists them ("0-7,16"). `ran` are those of its stopped processes that did not stay
    so for SECOND_LOOK seconds.
    """

    pid: int
    status: str
    started_at: float
    environ: dict[str, str] | Missing
    children: tuple[Child, ...] = field(default=())
    memlock: int | Missing | None = UNREAD
    cpus: str = ""
    mems: str = ""
    ran: tuple[int, ...] = ()

    @property
    def stopped(self) -> tuple[int, ...]:
        """Pids of this process and its children that are stopped and stay so."""
        own = (self.pid,) if self.status in STOPPED else ()
        both = own + tuple(c.pid for c in self.children if c.stopped)
        return tuple(pid for pid in both if pid not in self.ran)

    @property
    def family(self) -> frozenset[int]:
        return frozenset([self.pid, *(c.pid for c in self.children)])


def request(pids: list[int]) -> dict[str, dict[str, Any]]:
    return {"processes": {"pids": pids}} if pids else {}


def parse(pid: int, rows: dict[str, Any] | Missing) -> Process | Missing:
    """The process `pid` of the tool's answer, or why there is none."""
    if isinstance(rows, Missing):
        return rows
    row = rows.get(str(pid), {"missing": f"process {pid} was not asked for"})
    if "missing" in row:
        return Missing(row["missing"])
    said = row["environ"]
    limits = row["memlock"]
    return Process(
        pid=pid,
        status=row["status"],
        started_at=row["started_at"],
        environ=Missing(said["missing"]) if "missing" in said else said["values"],
        children=tuple(Child(c["pid"], c["status"], c["command"]) for c in row["children"]),
        memlock=limit(limits[0]) if limits else Missing("its limits cannot be read"),
        cpus=row.get("cpus", ""),
        mems=row.get("mems", ""),
        ran=tuple(row.get("ran", ())),
    )


def limit(value: int) -> int | None:
    """The tool's -1 is unlimited."""
    return None if value < 0 else value


def shown(environ: dict[str, str]) -> dict[str, str]:
    """Wanted variables as the tool shows running ones, so that the two can be compared and told."""
    return {name: veiled(name, value) for name, value in environ.items()}


def pids_of(unit: Unit | Missing, process: Process | Missing) -> frozenset[int]:
    """Of a unit's processes, as far as they are known.

    Its keeper is one of them: the life that it begins between two looks is the unit's too.
    """
    here = {unit.pid, unit.keeper} if known(unit) else set()
    family = process.family if known(process) else frozenset()
    return family | {pid for pid in here if pid}
