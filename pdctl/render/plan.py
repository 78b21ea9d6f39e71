"""A plan as a diff a host, then how many changes there are; and what a deploy came to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pdctl.errors import PdctlError
from pdctl.flows.deploy.result import Outcome, State
from pdctl.plan.step import Pending, Plan
from pdctl.render.paths import here
from pdctl.render.table import show_table

# How differences read where there was nothing before.
_NEW = re.compile(
    r"\(unset\) ->|: none ->|: not there($| ->)|^new unit$|^environment \w+: \(unset\) ->"
    r"|is not (there yet|installed)$"
)


def show_plan(plan: Plan, applied: bool = False, broken: Mapping[str, PdctlError] | None = None) -> None:
    """`broken` says why a host takes no part."""
    for host, error in (broken or {}).items():
        print(f"{host}: takes no part: {here(error.message)}")
    steps = [p for p in plan.pending if not p.step.gate]
    if applied:
        _applied(steps)
        return
    for host in dict.fromkeys(p.step.host for p in steps):
        print("restarts" if host == "fleet" else host)
        for pending in (p for p in steps if p.step.host == host):
            print(f"  {_sign(pending)} {pending.step.describe}")
            for line in pending.differences:
                print(f"      {line}")
    checks = [p for p in plan.pending if p.step.id.startswith("preflight/")]
    if steps and checks:
        print("before anything is switched")
        for pending in checks:
            print(f"  ? {pending.step.describe}")
    if plan.changes and not steps:
        print("what serves has not been proved since an earlier deploy ended early")
    print(counted(plan))


def _sign(pending: Pending) -> str:
    """! restarts, - removes, + adds what was not there, ~ changes what was."""
    if "restart" in pending.step.describe.split()[:1]:
        return "!"
    if "/remove/" in pending.step.id:
        return "-"
    return "+" if all(_NEW.search(line) for line in pending.differences) else "~"


def _applied(steps: list[Pending]) -> None:
    """What was not there before has been told step by step; what was changed is the news."""
    new = [p for p in steps if all(_NEW.search(line) for line in p.differences)]
    if new:
        print(f"* set up what was not there: {counted(Plan(tuple(new)))}; `pdctl history` keeps the steps")
    for pending in steps:
        if pending in new:
            continue
        where = "" if pending.step.host == "fleet" else f"{pending.step.host}: "
        print(f"* {where}{pending.step.describe}")
        for line in pending.differences:
            print(f"    {line}")


def counted(plan: Plan) -> str:
    return "1 change" if plan.changes == 1 else f"{plan.changes} changes"


def show_outcome(outcome: Outcome, changed: bool) -> None:
    """The tables of what is true now, where there is more to tell than that all is as it was."""
    groups = [g for g in outcome.groups if g.hosts or g.state not in (State.SAME, State.DONE)]
    if any(g.state not in (State.SAME, State.DONE) for g in groups):
        cells = [(g.group, ", ".join(g.hosts), str(g.state), g.serves or None, g.why or None) for g in groups]
        show_table(("what", "hosts", "state", "serves", "why"), cells)
        print()
    if any(h.state != "ok" for h in outcome.hosts) or (changed and len(outcome.hosts) > 1):
        hosts = [(h.host, h.state, h.release or None, h.why or None) for h in outcome.hosts]
        show_table(("host", "state", "current release", "why"), hosts)
    show_notes(outcome.notes)


def show_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {here(note)}")
