"""When a deadline will end a request that nothing moves; pure."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.adapters.picture import Leg, Timeout
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.ledger import Entry
from pdctl.diagnose.words import span
from pdctl.facts.missing import known

_CLOSE = 2.0  # bounds as close as this are one number


@dataclass(frozen=True)
class _End:
    """A deadline, and between which seconds from now it fires."""

    timeout: Timeout
    soonest: float
    latest: float


def ends(facts: Facts, entry: Entry) -> str:
    """Which deadline will end the request, and when, as the end of a sentence; "" where none is known.

    Prefill's runs since the end of the prompt's computation. Decode's runs since prefill last spoke of the
    room, which neither side shows: it is not before decode asked, and while no byte has come not after the
    prompt was computed.
    """
    prefill, decode = _leg(facts, entry.prefill, entry), _leg(facts, entry.decode, entry)
    found: list[_End] = []
    if prefill and prefill[1].stage == "inflight" and (limit := _limit(prefill[0], "inflight")):
        left = limit.value - prefill[1].stage_age
        found.append(_End(limit, left, left))
    if decode and decode[1].stage in ("preallocated", "transferring"):
        age = decode[1].stage_age
        limit = _limit(decode[0], "queue" if decode[1].waiting_on == "turn" else "transfer")
        if limit:
            youngest = age if decode[1].waiting_on == "turn" else _silence(prefill, decode)
            found.append(_End(limit, limit.value - age, limit.value - youngest))
    if not found:
        return ""
    first = min(found, key=lambda end: end.latest)
    latest, soonest = max(0.0, first.latest), max(0.0, min(end.soonest for end in found))
    named = f"{first.timeout.env} ({first.timeout.value:g} s) ends it in"
    about = "about" if latest - soonest <= _CLOSE else "at most"
    return f"; {named} {about} {span(latest)}"


def _silence(prefill: tuple[EngineView, Leg] | None, decode: tuple[EngineView, Leg]) -> float:
    """For how long at least prefill has not spoken of the room."""
    age = decode[1].stage_age
    if decode[1].bytes or prefill is None or prefill[1].bytes:
        return 0.0
    if prefill[1].stage == "inflight" and prefill[1].waiting_on != "want":
        return min(age, prefill[1].stage_age)
    return age if prefill[1].waiting_on in ("want", "decode") else 0.0


def _leg(facts: Facts, name: str | None, entry: Entry) -> tuple[EngineView, Leg] | None:
    view = facts.engine(name or "")
    if view is None:
        return None
    mine = (leg for leg in view.legs if leg.id == entry.id or (leg.room and leg.room == entry.room))
    leg = next(mine, None)
    return (view, leg) if leg else None


def _limit(view: EngineView, name: str) -> Timeout | None:
    state = view.state
    return state.timeouts.get(name) if known(state) else None
