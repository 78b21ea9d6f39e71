"""A plan as lines: what each step changes, then how many changes there are."""

from __future__ import annotations

import re

from pdctl.plan.step import Plan

# How differences read where there was nothing before.
_NEW = re.compile(r"\(unset\) ->|: none ->|: not there ->|^new unit$|is not (there yet|installed)$")


def show_plan(plan: Plan, applied: bool = False) -> None:
    steps = [p for p in plan.pending if not p.step.gate]
    # Once applied, what was not there before has been told step by step; what was changed is the news.
    new = [p for p in steps if applied and all(_NEW.search(line) for line in p.differences)]
    if new:
        print(f"* set up what was not there: {counted(Plan(tuple(new)))}; `pdctl history` keeps the steps")
    for pending in steps:
        if pending in new:
            continue
        where = "" if pending.step.host == "fleet" else f"{pending.step.host}: "
        print(f"{'*' if applied else '~'} {where}{pending.step.describe}")
        for line in pending.differences:
            print(f"    {line}")
    if not applied:
        print(counted(plan))


def counted(plan: Plan) -> str:
    return "1 change" if plan.changes == 1 else f"{plan.changes} changes"
