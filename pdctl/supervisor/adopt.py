"""Go on where an earlier supervisor stopped: its open incidents, and how often it has acted."""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.supervisor.case import Case, Done
from pdctl.supervisor.clock import Clock
from pdctl.supervisor.incidents import Action, Incidents
from pdctl.supervisor.policy import Act
from pdctl.supervisor.states import RESTING, State

# An act whose supervisor died meanwhile was begun: it counts.
_BEGUN = ("done", "failed", "cut-off", "running")
_ALL = 1_000_000


def adopt(cases: Mapping[str, Case], store: Incidents, clock: Clock) -> None:
    """Fill `cases` from the file; incidents of what the fleet file names no more are closed."""
    now, wall = clock.now(), clock.wall()

    def done(action: Action) -> Done | None:
        if action.action not in set(Act) or action.outcome not in _BEGUN:
            return None
        # A date in the future is a clock that was set back: as if it were now.
        return Done(Act(action.action), action.target, now - max(0.0, wall - action.at))

    for incident in store.recent(_ALL, open_only=True):
        case = cases.get(incident.cell)
        if case is None or case.incident is not None:
            store.close(incident.id, incident.state, "nothing of it is in the fleet file any more")
            continue
        case.incident = incident.id
        # Well from the first look on, it ends as any other does: after a calm.
        state = State(incident.state) if incident.state in RESTING else State.SETTLING
        case.machine.state, case.machine.since = state, now
        for action in store.actions(incident.id):
            if action.outcome == "running":
                store.ended(action.id, "cut-off", "the supervisor ended meanwhile")
            if tried := done(action):
                case.tried.append(tried)
    for action in store.actions(last=500):
        found = store.one(action.incident) if action.incident is not None else None
        case = cases.get(found.cell) if found else None
        if case is not None and (was := done(action)):
            case.done.append(was)
