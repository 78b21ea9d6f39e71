"""A unit's log: its end, and what is added to it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context
from pdctl.transport.command import Command

POLL = 0.5
QUICK = 10.0


def follow(ctx: Context, unit: Engine | Router) -> Iterator[str]:
    """Text as it is appended, from now on, without end; a rotated log is followed from its new start."""
    transport = ctx.transport(unit.host)
    path = ctx.fleet.host_paths(unit.host).log(unit.name)
    at = _size(ctx, unit, path)
    while True:
        size = _size(ctx, unit, path)
        if size < at:
            at = 0
        if size > at:
            result = transport.run(Command(("tail", "-c", f"+{at + 1}", path)), QUICK)
            at += len(result.stdout)
            yield result.text
        time.sleep(POLL)


def _size(ctx: Context, unit: Engine | Router, path: str) -> int:
    result = ctx.transport(unit.host).run(Command(("stat", "-c", "%s", path)), QUICK)
    return int(result.text) if result.rc == 0 else 0
