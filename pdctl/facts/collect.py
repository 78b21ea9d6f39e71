"""Unit and process facts of one host, and whatever else is asked with them; what cannot be had is Missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError, UnreachableError
from pdctl.facts import process
from pdctl.facts.ask import Answers, Request
from pdctl.facts.missing import Missing, known
from pdctl.facts.process import Process
from pdctl.facts.unit import Unit
from pdctl.units.base import Units
from pdctl.units.spec import UnitStatus

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
NOTHING = Answers({}, {}, 0.0, 0.0)


@dataclass(frozen=True)
class UnitFacts:
    unit: Unit | Missing
    process: Process | Missing


def unit_of(status: UnitStatus) -> Unit:
    """A backend's status in the words of the rules; a signal is a negative exit."""
    exit = status.exit_code if status.exit_signal is None else -status.exit_signal
    state, reason = _STATES.get(status.state, status.state), status.reason
    if status.state == "active" and status.pid is None:
        state, reason = "backoff", "its process has just ended"
    return Unit(
        name=status.name,
        state=state,
        wanted=status.wanted or status.state not in ("inactive", "deactivating", "failed"),
        pid=status.pid,
        exit=exit,
        ended_by=status.ended_by,
        keeper=status.keeper_pid,
        restarts=status.restarts,
        since=status.since or None,
        started_at=status.started_at,
        reason=reason,
        started_by=status.started_by,
    )


@dataclass(frozen=True)
class Gathered:
    """What one host said: the statuses of its units, Missing when its backend could not tell, and answers."""

    statuses: dict[str, UnitStatus] | Missing
    answers: Answers

    def units(self, names: Sequence[str]) -> dict[str, UnitFacts]:
        """Facts of every name; what cannot be had is Missing."""
        if isinstance(self.statuses, Missing):
            return dict.fromkeys(names, UnitFacts(self.statuses, self.statuses))
        return {name: _facts(name, self.statuses.get(name), self.answers) for name in names}


def lost(why: str, more: Request) -> Gathered:
    """Of a host that did not answer."""
    return Gathered(Missing(why), Answers({}, dict.fromkeys(more, why), 0.0, 0.0))


def gather(units: Units, ask: Callable[[Request], Answers], names: Sequence[str], more: Request) -> Gathered:
    """One look at the units of a host, then one question for their processes and `more`.

    Never raises PdctlError: what cannot be had is Missing.
    """
    statuses: dict[str, UnitStatus] | Missing
    try:
        statuses = units.status(names)
    except UnreachableError as error:
        return lost(error.message, more)
    except PdctlError as error:
        statuses = Missing(error.message)
    there = {} if isinstance(statuses, Missing) else statuses
    request = {**process.request([s.pid for s in there.values() if s.pid is not None]), **more}
    try:
        answers = ask(request) if request else NOTHING
    except PdctlError as error:
        answers = Answers({}, dict.fromkeys(request, error.message), 0.0, 0.0)
    return Gathered(statuses, answers)


def collect(
    units: Units, ask: Callable[[Request], Answers], names: Sequence[str], more: Request
) -> tuple[dict[str, UnitFacts], Answers]:
    """Facts of every name, and the host's answers to `more`."""
    found = gather(units, ask, names, more)
    return found.units(names), found.answers


def _facts(name: str, status: UnitStatus | None, answers: Answers) -> UnitFacts:
    if status is None:
        return UnitFacts(unit_of(UnitStatus(name, "missing")), Missing("it was never started"))
    unit = unit_of(status)
    if unit.pid is None:
        return UnitFacts(unit, Missing("no process runs"))
    found = process.parse(unit.pid, answers.of("processes"))
    if known(found) and unit.state in ("running", "starting"):
        unit = unit.born(found.started_at)
    return UnitFacts(unit, found)
