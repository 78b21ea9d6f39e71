"""Timeouts of a running unit: noted as they are before a run sets them, set, and read back."""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.recovery.record import Record
from pdctl.flows.waiting import until

READ_BACK = 10.0


def add_live(ctx: Context, record: Record, unit: str, values: Mapping[str, float]) -> None:
    """Note what `unit` has in force of `values`, and that the run is to set these."""
    url = ctx.fleet.unit(unit).url
    record.lives[unit] = str(admin.get(ctx, url, "/v1/state")["incarnation"])
    seen = admin.timeouts(ctx, url)
    record.timeouts[unit] = {name: (seen[name], value) for name, value in values.items()}


def set_live(ctx: Context, unit: str, values: Mapping[str, float]) -> None:
    """Set timeouts of a running unit and wait until its state shows them; DeadlineError when it does not."""
    url = ctx.fleet.unit(unit).url
    admin.post(ctx, url, "timeouts", dict(values))

    def behind() -> str:
        seen = admin.state(ctx, url).get("timeouts", {})
        wrong = [
            f"{n}={seen.get(n, {}).get('value')}"
            for n, v in values.items()
            if seen.get(n, {}).get("value") != v
        ]
        return f"{unit} shows {', '.join(wrong)}" if wrong else ""

    until(behind, READ_BACK)
