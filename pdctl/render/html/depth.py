"""How deep queues were over time, from how long each request was in them: steps, drawn as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from pdctl.diagnose.facts import EngineView, Facts
from pdctl.facts.missing import known

Span = tuple[float, float]  # Unix seconds: into the queue, out of it
# A stage of a request as an engine names it -> its queue, in words.
_QUEUES = {
    "waiting": "waiting",
    "prefilling": "prefilling",
    "inflight": "inflight",
    "preallocated": "waiting for KV",
    "transferring": "transferring",
    "ready": "ready",
    "running": "running",
}


def spans(facts: Facts) -> Iterator[tuple[str, str, list[Span]]]:
    """(whose, which queue, when each request was in it), of what is over and of what is still there."""
    state = facts.router_state
    if known(state):
        over = [(e.at - e.seconds, e.at) for e in state.ended]
        open_ = [(facts.at - r.age, facts.at) for r in facts.requests] if known(facts.requests) else []
        yield "router", "requests", [*over, *open_]
    for view in facts.engines:
        yield from _of_engine(facts, view)


def _of_engine(facts: Facts, view: EngineView) -> Iterator[tuple[str, str, list[Span]]]:
    state = view.state
    found: dict[str, list[Span]] = {}
    if known(state) and known(state.dwell):
        found["inflight"] = [(at - seconds, at) for at, seconds, _ in state.dwell.recent]
    for leg in view.legs:
        found.setdefault(_QUEUES.get(leg.stage, leg.stage), []).append((facts.at - leg.stage_age, facts.at))
    for queue, inside in found.items():
        yield view.name, queue, inside


def steps(inside: Sequence[Span], first: float, last: float) -> list[tuple[float, int]]:
    """(when, how many from then on) between `first` and `last`, beginning and ending there."""
    ends = [(at, 1) for at, _ in inside] + [(at, -1) for _, at in inside if at < last]
    depth, found = 0, [(first, 0)]
    for at, change in sorted(ends):
        depth += change
        if at <= first:
            found = [(first, depth)]
        elif at <= last:
            found.append((at, depth))
    return [*found, (last, depth)]


def line(points: Sequence[tuple[float, float]]) -> str:
    """A stair through points of the drawing."""
    path = [f"{x:.1f},{y:.1f}" for x, y in points[:1]]
    for (_, before), (x, y) in pairwise(points):
        path += [f"{x:.1f},{before:.1f}", f"{x:.1f},{y:.1f}"]
    return " ".join(path)


def label(name: str, queue: str) -> str:
    return escape(f"{name}: {queue}")
