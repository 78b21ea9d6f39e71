"""When each engine's present life began, and when a pair last worked; from what was told and from logs."""

from __future__ import annotations

from pdctl.diagnose.facts import EngineView, Facts
from pdctl.facts.missing import known

_BORN = ("restarted", "deployed", "upgraded", "scaled")
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


def lived_at(view: EngineView, at: float) -> bool:
    """Whether its own traces show it at work before `at`."""
    marks = [e.at for e in view.traces.events if e.at is not None and e.sign != "life.start"]
    marks += [r.at for r in view.traces.readings if r.at is not None and r.source == "log"]
    return any(mark < at for mark in marks)


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
    if p is not None and d is not None:
        if abs(p - d) < TOGETHER:
            return None
        return (prefill, decode, p) if p > d else (decode, prefill, d)
    if p is None and d is None:
        return None
    young, old, at = (prefill, decode, p) if p is not None else (decode, prefill, d)
    replaced = any(c.party == young.name and c.what in _BORN[:3] for c in facts.changes)
    return (young, old, at or 0.0) if replaced or lived_at(old, at or 0.0) else None
