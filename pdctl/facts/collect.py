"""Unit and process facts of one host, bounded by a deadline; what cannot be had is Missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.facts.missing import Missing, known
from pdctl.facts.process import Process, probe
from pdctl.facts.unit import Unit
from pdctl.units.base import Units
from pdctl.units.spec import UnitStatus

_ENDED = re.compile(r"\[keeper\] .*: ended (?:by signal (?P<signal>\d+)|with exit code (?P<code>\d+))")
_STATES = {
    "missing": "absent",
    "inactive": "stopped",
    "activating": "starting",
    "active": "running",
    "deactivating": "stopping",
    "restarting": "backoff",
    "failed": "failed",
    "orphaned": "orphaned",
}


@dataclass(frozen=True)
class HostFacts:
    unit: Unit | Missing
    process: Process | Missing


def unit_of(status: UnitStatus) -> Unit:
    """A backend's status in the words of the rules; a signal is a negative exit."""
    exit = status.exit_code if status.exit_signal is None else -status.exit_signal
    return Unit(
        name=status.name,
        state=_STATES.get(status.state, status.state),
        wanted=status.state not in ("inactive", "deactivating"),
        pid=status.pid,
        exit=exit,
        restarts=status.restarts,
        since=status.since or None,
        started_at=status.since if status.state == "active" else None,
        reason=status.reason,
    )


def collect(units: Units, names: Sequence[str], local: bool) -> dict[str, HostFacts]:
    """Facts of every name. Processes are read only on this machine."""
    try:
        statuses = units.status(names)
    except PdctlError as error:
        return dict.fromkeys(names, HostFacts(Missing(error.message), Missing(error.message)))
    return {name: _facts(units, name, statuses.get(name), local) for name in names}


def last_end(lines: Sequence[str]) -> int | None:
    """The exit of the life before this one, from the keeper's own lines in the log."""
    for line in reversed(lines):
        found = _ENDED.search(line)
        if found:
            return -int(found["signal"]) if found["signal"] else int(found["code"])
    return None


def _facts(units: Units, name: str, status: UnitStatus | None, local: bool) -> HostFacts:
    if status is None:
        return HostFacts(unit_of(UnitStatus(name, "missing")), Missing("it was never started"))
    unit = unit_of(status)
    if unit.restarts and unit.exit is None:
        unit = unit.ended(last_end(units.logs(name, 2000)))
    if unit.pid is None:
        return HostFacts(unit, Missing("no process runs"))
    process = probe(unit.pid) if local else Missing("it runs on another host")
    if known(process) and unit.state in ("running", "starting"):
        unit = unit.born(process.started_at)
    return HostFacts(unit, process)
