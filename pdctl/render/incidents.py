"""Incidents as a table; one with its timeline, the actions and where its evidence lies."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pdctl.remote.lock import span
from pdctl.render.table import show_table
from pdctl.supervisor.incidents import Action, Incident


def show_incidents(incidents: Sequence[Incident], actions: Mapping[int, Sequence[Action]]) -> None:
    if not incidents:
        print("No incident.")
        return
    columns = ("id", "opened", "cell", "state", "lasted", "codes", "actions", "what")
    show_table(columns, [_row(i, actions.get(i.id, ())) for i in incidents])


def _row(i: Incident, actions: Sequence[Action]) -> tuple[object, ...]:
    acts = ", ".join(f"{a.action} {a.outcome}" for a in actions) or None
    lasted = "open" if i.closed is None else span(i.closed - i.opened)
    return (i.id, _day(i.opened), i.cell or None, i.state, lasted, " ".join(i.codes), acts, i.summary)


def show_incident(i: Incident, actions: Sequence[Action]) -> None:
    where = f"cell {i.cell}" if i.cell else i.subject
    over = "open" if i.closed is None else f"over after {span(i.closed - i.opened)}"
    print(f"incident {i.id}  {where}  {i.state}  {over}")
    print(f"{i.summary}")
    if i.codes:
        print(f"findings: {' '.join(i.codes)}; see `pdctl explain {i.codes[0]}`")
    print()
    for moment in i.timeline:
        print(f"{_day(moment.at)}  {moment.what:<8} {moment.text}")
    for action in actions:
        print(f"\naction {action.id}: {action.action} {action.target}: {action.outcome}")
        if action.detail:
            print(f"  {action.detail}")
    if i.evidence:
        print(f"\nevidence: {i.evidence}; judge it again with `pdctl diagnose --from {i.evidence}`")


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
