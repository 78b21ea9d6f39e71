"""A unit's log: its end, and what is added to it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context

POLL = 0.5


def follow(ctx: Context, unit: Engine | Router, lines: int = 0) -> Iterator[str]:
    """The last `lines`, then text as it is added, without end, over a rotation too."""
    units = ctx.units_of(unit)
    part = units.log_since(unit.name, lines=lines)
    while True:
        if part.text:
            yield part.text
        time.sleep(POLL)
        part = units.log_since(unit.name, part.cursor)
