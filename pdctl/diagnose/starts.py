"""When each engine's present life began, and when a pair last worked; from what was told and from logs."""

from __future__ import annotations

from pdctl.diagnose.facts import EngineView, Facts
from pdctl.facts.missing import known

_BORN = ("restarted", "deployed", "upgraded", "scaled")
_WORK = ("running", "queue_inflight", "queue_transfer", "prompt_tps", "generation_tps")
TOGETHER = 90.0  # two starts within this are one restart of both


def foreign(view: EngineView) -> bool:
    """Whether it is another engine than the bundled one, which knows its peers' lives by itself."""
    state = view.state
    return not (known(state) and state.kind == "bundled")


def started(facts: Facts, view: EngineView) -> float | None:
    """The newest start that anything tells of."""
    told = view.traces.started_at
    changed = [c.at for c in facts.changes if c.party == view.name and c.what in _BORN and c.at is not None]
    logged = [e.at for e in view.traces.of("life.start") if e.at is not None]
    return max([*([told] if told is not None else []), *changed, *logged], default=None)


def worked_at(view: EngineView, at: float) -> bool:
    """Whether its own traces show it at work before `at`."""
    good = view.traces.last_transfer_at
    busy = any(
        r.at is not None and r.at < at and any(r.numbers.get(name, 0.0) > 0 for name in _WORK)
        for r in view.traces.readings
    )
    return busy or (good is not None and good < at)


def born_again(facts: Facts, view: EngineView) -> bool:
    """Whether its present life is not its first, as far as anything tells."""
    changed = any(c.party == view.name and c.what in _BORN[:3] for c in facts.changes)
    logged = [e for e in view.traces.of("life.start") if e.at is not None]
    return changed or bool(view.traces.restarts) or len({round((e.at or 0.0) / TOGETHER) for e in logged}) > 1


def last_good(*views: EngineView) -> float | None:
    """When one of them last handed a request over, as told."""
    return max((v.traces.last_transfer_at for v in views if v.traces.last_transfer_at), default=None)


def stopped(facts: Facts, view: EngineView) -> list[tuple[float | None, str]]:
    """(when, words) of every stop that was asked for."""
    found: list[tuple[float | None, str]] = [
        (c.at, f"{view.name} was {c.what}")
        for c in facts.changes
        if c.party == view.name and c.what in ("stopped", *_BORN)
    ]
    found += [(e.at, f"{view.name} ({e.where}): {e.line}") for e in view.traces.of("life.stop")]
    return found


def young_and_old(
    facts: Facts, prefill: EngineView, decode: EngineView
) -> tuple[EngineView, EngineView, float] | None:
    """(restarted side, the side that lived on, when) of a pair restarted on one side; None otherwise."""
    p, d = started(facts, prefill), started(facts, decode)
    if p is None and d is None:
        return None
    if p is not None and d is not None and abs(p - d) < TOGETHER:
        return None
    young, old = (prefill, decode) if d is None or (p is not None and p > d) else (decode, prefill)
    at = max(s for s in (p, d) if s is not None)
    # Two sides that were first started one after the other are no restart.
    return (
        (young, old, at) if born_again(facts, young) or worked_at(old, at) or worked_at(young, at) else None
    )
