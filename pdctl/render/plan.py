"""A plan as lines: what each step changes, then how many changes there are."""

from __future__ import annotations

from pdctl.plan.step import Plan


def show_plan(plan: Plan, applied: bool = False) -> None:
    for pending in plan.pending:
        if pending.step.gate:
            continue
        where = "" if pending.step.host == "fleet" else f"{pending.step.host}: "
        print(f"{'*' if applied else '~'} {where}{pending.step.describe}")
        for line in pending.differences:
            print(f"    {line}")
    if not applied:
        print(counted(plan))


def counted(plan: Plan) -> str:
    return "1 change" if plan.changes == 1 else f"{plan.changes} changes"
