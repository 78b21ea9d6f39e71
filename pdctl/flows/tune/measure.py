"""Measure time in the inflight queue: idle, under load, and while decode is saturated."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pdctl.fleet.chain import IDLE, PREALLOC, QUEUE, TOTAL
from pdctl.fleet.model import Engine, Fleet
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.load.plan import Shape
from pdctl.flows.load.report import Shot
from pdctl.flows.load.run import drive
from pdctl.flows.tune.estimate import needed
from pdctl.flows.tune.proposal import ENOUGH

# Tokens of a conversation: what is measured holds for prompts of that length, and longer ones wait longer.
CONTEXT = 512
# The engine's own default where the fleet file leaves max_running out.
SLOTS = 16
_LOOK = 1.0  # an engine keeps the last 512 dwells: looking every second misses none
# Decode's stages that its prealloc and transfer deadlines bound, but for the wait for the prompt's turn.
_BEFORE = ("waiting", "preallocated", "transferring")
# What a fleet's own deadlines end requests with that only wait, and which they are. A transfer that was cut
# stood still, and is no matter of more time.
_CUTS = {
    "prealloc_timeout": PREALLOC,
    "queue_timeout": QUEUE,
    "router_idle_timeout": IDLE,
    "router_total_timeout": TOTAL,
}
_IDLE = 10.0  # one request at a time says the same after a few


@dataclass(frozen=True)
class Phase:
    """`dwells` are seconds of transfers that ended well, in order of time; `worst` other outcomes by name.

    `waiting` is the most requests seen waiting for a place on decode, `waited` the longest that one was seen
    in a stage of decode before its KV was there, in seconds, `shots` what the clients saw.
    """

    name: str
    seconds: float
    dwells: tuple[float, ...]
    worst: dict[str, int]
    waiting: int
    shots: tuple[Shot, ...]
    waited: float = 0.0

    @property
    def failed(self) -> int:
        return sum(not shot.ok for shot in self.shots)

    @property
    def silent(self) -> float:
        """The longest that a request which went well had to wait for its first text, in seconds."""
        return max((shot.ttft or 0.0 for shot in self.shots if shot.ok), default=0.0)

    @property
    def cut_by(self) -> frozenset[str]:
        """The deadlines of the fleet that ended requests."""
        return frozenset(_CUTS[shot.code] for shot in self.shots if shot.code in _CUTS)

    @property
    def trouble(self) -> str:
        """How many requests failed and with what, "" when none did."""
        codes = Counter(shot.code for shot in self.shots if not shot.ok)
        said = ", ".join(f"{code} {count}" for code, count in codes.most_common(3))
        return f"{self.failed} of {len(self.shots)} requests failed ({said})" if said else ""


@dataclass(frozen=True)
class Ended:
    """A transfer as its prefill tells of it: when it ended (Unix seconds), how long it dwelt, and how."""

    prefill: str
    at: float
    seconds: float
    how: str


class Watcher:
    """Collects dwells of all prefills and the depth of decode's queue while a load runs."""

    def __init__(self, ctx: Context) -> None:
        fleet = ctx.fleet
        self._ctx = ctx
        self._prefills = [e for e in fleet.engines() if e.role == "prefill"]
        self._decodes = [e for e in fleet.engines() if e.role == "decode"]
        self._seen: set[Ended] = set()
        self._old: set[Ended] = set()
        self.waiting = 0
        self.waited = 0.0

    def _dwells(self, engine: Engine) -> set[Ended]:
        recent = admin.state(self._ctx, engine.url, 5.0).get("dwell", {}).get("recent", [])
        return {Ended(engine.name, float(at), float(s), str(how)) for at, s, how in recent}

    def begin(self) -> None:
        """What lies in the engines already does not count."""
        for engine in self._prefills:
            self._old |= self._dwells(engine)

    def look(self) -> None:
        for engine in self._prefills:
            self._seen |= self._dwells(engine)
        for engine in self._decodes:
            state: dict[str, Any] = admin.state(self._ctx, engine.url, 5.0)
            self.waiting = max(self.waiting, int(state.get("queues", {}).get("waiting", {}).get("depth", 0)))
            before = [r for r in state.get("requests", []) if r["stage"] in _BEFORE]
            ages = [r["stage_age_s"] for r in before if r["waiting_on"] != "turn"]
            self.waited = max([self.waited, *map(float, ages)])

    def ended(self) -> list[Ended]:
        return sorted(self._seen - self._old, key=lambda e: e.at)


@dataclass(frozen=True)
class Plan:
    """A condition: its load for `seconds`, again until `enough` transfers were seen or `limit` is over."""

    name: str
    shape: Shape
    enough: int
    limit: float


def plans(
    fleet: Fleet,
    seconds: float,
    target: float,
    limit: float,
    context: int = CONTEXT,
    patience: float = Shape.deadline,
) -> tuple[Plan, ...]:
    """Idle: one request at a time. Load: a few agents. Saturated: half more requests at once than decode has
    slots, and two, until the target's rate can be borne out.

    Conversations of up to `context` tokens: half of them begin long, so that the first minute is already like
    every later one. ConfigError when a round does not fit. A client waits `patience` seconds: what it gives
    up earlier than the fleet would is not measured.
    """
    slots = sum(e.spec.max_running or SLOTS for e in fleet.engines() if e.role == "decode")
    limit = max(limit, seconds)
    shape = Shape(agents=1, seconds=seconds, tokens=24, context=context, long=0.5, deadline=patience)
    return (
        Plan("idle", replace(shape, agents=1, seconds=min(seconds, _IDLE), tokens=4), 0, limit),
        Plan("load", replace(shape, agents=3, tokens=8), ENOUGH, limit),
        Plan("saturated", replace(shape, agents=slots + slots // 2 + 2), needed(target), limit),
    )


def measure(ctx: Context, wanted: Sequence[Plan]) -> list[Phase]:
    """One phase after the other, and what the last requests of each take."""
    return [measure_one(ctx, plan) for plan in wanted]


def measure_one(ctx: Context, plan: Plan) -> Phase:
    shape = plan.shape
    ctx.say(f"measuring dwell, {plan.name}: {shape.agents} agents for {shape.seconds:g} s")
    watcher = Watcher(ctx)
    watcher.begin()
    began = time.monotonic()
    phase = Phase(plan.name, 0.0, (), {}, 0, ())
    while True:
        before = len(phase.dwells)
        shots = asyncio.run(_drive(ctx, watcher, shape, seed=len(phase.shots)))
        phase = phase_of(plan.name, watcher, time.monotonic() - began, (*phase.shots, *shots))
        have, stuck = len(phase.dwells), len(phase.dwells) == before
        if have >= plan.enough or stuck or phase.seconds + shape.seconds > plan.limit:
            return phase
        ctx.say(f"measuring dwell, {plan.name}: {have} of {plan.enough} transfers that the target takes")


def phase_of(name: str, watcher: Watcher, seconds: float, shots: tuple[Shot, ...]) -> Phase:
    ended = watcher.ended()
    worst = dict(Counter(e.how for e in ended if e.how != "done"))
    dwells = tuple(e.seconds for e in ended if e.how == "done")
    return Phase(name, round(seconds, 1), dwells, worst, watcher.waiting, shots, watcher.waited)


async def _drive(ctx: Context, watcher: Watcher, shape: Shape, seed: int) -> tuple[Shot, ...]:
    load = asyncio.create_task(drive(ctx, shape, seed=seed))
    try:
        while not load.done():
            await asyncio.wait([load], timeout=_LOOK)
            await asyncio.to_thread(watcher.look)
    finally:
        load.cancel()
    return load.result().shots
