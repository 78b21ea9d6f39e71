"""Measure time in the inflight queue under load and while decode is saturated."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pdctl.fleet.model import Engine, Fleet
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.tune.load import Shape, Shot, drive

# The engine's own default where the fleet file leaves max_running out.
SLOTS = 16
_LOOK = 1.0  # an engine keeps the last 512 dwells: looking every second misses none


@dataclass(frozen=True)
class Phase:
    """`dwells` are seconds of transfers that ended well; `worst` other outcomes by name.

    `waiting` is the most requests seen waiting for a place on decode, `shots` what the clients saw.
    """

    name: str
    seconds: float
    dwells: tuple[float, ...]
    worst: dict[str, int]
    waiting: int
    shots: tuple[Shot, ...]

    @property
    def failed(self) -> int:
        return sum(not shot.ok for shot in self.shots)

    @property
    def trouble(self) -> str:
        """How many requests failed and with what, "" when none did."""
        codes = Counter(shot.code for shot in self.shots if not shot.ok)
        said = ", ".join(f"{code} {count}" for code, count in codes.most_common(3))
        return f"{self.failed} of {len(self.shots)} requests failed ({said})" if said else ""


class _Watcher:
    """Collects dwells of all prefills and the depth of decode's queue while a load runs."""

    def __init__(self, ctx: Context) -> None:
        fleet = ctx.fleet
        self._ctx = ctx
        self._prefills = [e for e in fleet.engines() if e.role == "prefill"]
        self._decodes = [e for e in fleet.engines() if e.role == "decode"]
        self._seen: set[tuple[str, float, float, str]] = set()
        self._old: set[tuple[str, float, float, str]] = set()
        self.waiting = 0

    def _dwells(self, engine: Engine) -> set[tuple[str, float, float, str]]:
        recent = admin.state(self._ctx, engine.url, 5.0).get("dwell", {}).get("recent", [])
        return {(engine.name, float(at), float(s), str(how)) for at, s, how in recent}

    def begin(self) -> None:
        """What lies in the engines already does not count."""
        for engine in self._prefills:
            self._old |= self._dwells(engine)

    def look(self) -> None:
        for engine in self._prefills:
            self._seen |= self._dwells(engine)
        for engine in self._decodes:
            queues: dict[str, Any] = admin.state(self._ctx, engine.url, 5.0).get("queues", {})
            self.waiting = max(self.waiting, int(queues.get("waiting", {}).get("depth", 0)))

    def outcomes(self) -> list[tuple[float, str]]:
        return [(seconds, how) for _, _, seconds, how in self._seen - self._old]


def shapes(fleet: Fleet, seconds: float) -> dict[str, Shape]:
    """Load: a few agents. Saturated: more requests at once than decode has slots, by half and two more."""
    slots = sum(e.spec.max_running or SLOTS for e in fleet.engines() if e.role == "decode")
    return {
        "load": Shape(agents=3, seconds=seconds, tokens=8),
        "saturated": Shape(agents=slots + slots // 2 + 2, seconds=seconds, tokens=24),
    }


def measure(ctx: Context, seconds: float) -> tuple[Phase, ...]:
    """Both phases, `seconds` each and what the last requests take."""
    phases = []
    for name, shape in shapes(ctx.fleet, seconds).items():
        ctx.say(f"measuring dwell, {name}: {shape.agents} agents for {seconds:g} s")
        phases.append(asyncio.run(_phase(ctx, name, shape)))
    return tuple(phases)


async def _phase(ctx: Context, name: str, shape: Shape) -> Phase:
    watcher = _Watcher(ctx)
    await asyncio.to_thread(watcher.begin)
    load = asyncio.create_task(drive(ctx, shape))
    try:
        while not load.done():
            await asyncio.wait([load], timeout=_LOOK)
            await asyncio.to_thread(watcher.look)
    finally:
        load.cancel()
    outcomes = watcher.outcomes()
    worst: dict[str, int] = {}
    for _, how in outcomes:
        if how != "done":
            worst[how] = worst.get(how, 0) + 1
    dwells = tuple(sorted(s for s, how in outcomes if how == "done"))
    return Phase(name, shape.seconds, dwells, worst, watcher.waiting, tuple(load.result()))
