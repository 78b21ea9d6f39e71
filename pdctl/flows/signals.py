"""Signals to processes of units on their hosts, each by pid and start time, so that a stranger gets none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Engine, Router
from pdctl.flows.changing import doing
from pdctl.flows.context import Context
from pdctl.transport.base import checked
from pdctl.transport.command import Command

DEADLINE = 15.0
# Behind the command's name in brackets, which may hold anything: the state, and the start in ticks.
_LOOK = """for pid in "$@"; do
  line=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) && echo "$pid $(echo "$line" | cut -d' ' -f1,20)"
done
true"""
_SEND = """signal=$1; shift
for one in "$@"; do
  pid=${one%:*}
  line=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || continue
  [ "$(echo "$line" | cut -d' ' -f20)" = "${one#*:}" ] && kill -"$signal" "$pid" && echo "$pid"
done
true"""


@dataclass(frozen=True)
class Process:
    """One process of `unit`; `start` is in ticks since the boot of its host."""

    unit: str
    pid: int
    start: int


def processes(ctx: Context, unit: Engine | Router, pids: Sequence[int]) -> list[Process]:
    """Those of `pids` that exist on the unit's host."""
    return [Process(unit.name, pid, start) for pid, (_, start) in _look(ctx, unit, pids).items()]


def stopped(ctx: Context, unit: Engine | Router, those: Sequence[Process]) -> bool:
    """Whether every one of them stands still."""
    seen = _look(ctx, unit, [p.pid for p in those])
    return all(seen.get(p.pid) == ("T", p.start) for p in those)


def gone(ctx: Context, unit: Engine | Router, those: Sequence[Process]) -> bool:
    """Whether none of them lives."""
    seen = _look(ctx, unit, [p.pid for p in those])
    return all(p.pid not in seen or seen[p.pid][0] in "ZX" or seen[p.pid][1] != p.start for p in those)


def send(ctx: Context, signal: str, those: Iterable[Process]) -> list[Process]:
    """STOP, CONT or KILL to each that is still the same process; those that got it.

    PdctlError when a host refuses.
    """
    by_unit: dict[str, list[Process]] = defaultdict(list)
    for process in those:
        by_unit[process.unit].append(process)
    reached: list[Process] = []
    for name, mine in by_unit.items():
        unit = ctx.fleet.unit(name)
        words = [f"{p.pid}:{p.start}" for p in mine]
        what = f"SIG{signal} to pid {', '.join(str(p.pid) for p in mine)} of {name}"
        with doing(ctx, f"signal/{signal}/{name}", unit.host, what):
            said = _shell(ctx, unit, _SEND, [signal, *words], what).split()
            refused = [p for p in mine if str(p.pid) not in said]
            if refused and not gone(ctx, unit, refused):
                raise PdctlError("no_signal", f"{unit.host} does not allow {what}.", exit=Exit.FINDINGS)
        reached += [p for p in mine if str(p.pid) in said]
    return reached


def _look(ctx: Context, unit: Engine | Router, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Pid -> (letter of its state, start)."""
    if not pids:
        return {}
    lines = _shell(ctx, unit, _LOOK, [str(p) for p in pids], f"look at {unit.name}").splitlines()
    rows = [line.split() for line in lines]
    return {int(pid): (letter, int(start)) for pid, letter, start in rows}


def _shell(ctx: Context, unit: Engine | Router, script: str, words: Sequence[str], what: str) -> str:
    host = ctx.fleet.hosts[unit.host]
    root = ctx.units_of(unit).kind == "systemd" and host.spec.scope == "system"
    command = Command(("/bin/sh", "-c", script, "sh", *words), root=root)
    return checked(ctx.transport(unit.host), command, DEADLINE, what).text
