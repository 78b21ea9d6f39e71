"""What a router counts against what its engines hold, over time; pure."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.diagnose.facts import Facts, Party

_ENGINE = ("running", "waiting", "queue_bootstrap", "queue_inflight", "queue_prealloc", "queue_transfer")


@dataclass(frozen=True)
class Books:
    """`router` and `engines` are requests at the last reading, `before` the router's of each reading."""

    name: str
    router: float
    engines: float
    before: tuple[float, ...]
    engines_before: tuple[float, ...]

    @property
    def quiet(self) -> bool:
        """No engine held anything at any reading."""
        return not any(self.engines_before)

    @property
    def told(self) -> str:
        return f"{self.name} counts {self.router:g} requests, the engines hold {self.engines:g}"


def _held(party: Party, at: int) -> float | None:
    """Requests on one engine at its nth reading from the end; a decode's where a request is on both sides."""
    series = [party.traces.numbers(name) for name in _ENGINE]
    values = [s[at][1] for s in series if len(s) >= -at]
    return sum(values) if values else None


def books(facts: Facts) -> Books | None:
    """None when the router or an engine does not say. Of a pair the side that holds more counts, because a
    request is on both while it is handed over.
    """
    routers = [p for p in facts.parties if p.traces.last("router_active") is not None]
    if not routers:
        return None
    active = [v for _, v in routers[0].traces.numbers("router_active")]
    held = []
    for back in range(-min(len(active), 3), 0):
        sums: dict[str, float] = {}
        for engine in facts.engines:
            value = _held(engine, back)
            if value is None:
                return None if back == -1 else _without(routers[0], active, facts)
            sums[engine.role] = sums.get(engine.role, 0.0) + value
        held.append(max(sums.values()) if sums else 0.0)
    return Books(routers[0].name, active[-1], held[-1], tuple(active), tuple(held)) if held else None


def _without(router: Party, active: list[float], facts: Facts) -> Books | None:
    """Engines with one reading alone: it is compared with the router's last."""
    now = [_held(e, -1) for e in facts.engines]
    if any(v is None for v in now):
        return None
    sums: dict[str, float] = {}
    for engine, value in zip(facts.engines, now, strict=True):
        sums[engine.role] = sums.get(engine.role, 0.0) + (value or 0.0)
    last = max(sums.values(), default=0.0)
    return Books(router.name, active[-1], last, tuple(active), (last,))
