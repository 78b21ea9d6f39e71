"""The join: which request is where, across router, prefill and decode, by request id or room.

One entry per request that the router counts or an engine holds; pure. Verdicts:
moving     work is done on it, or it is young
held       the router keeps it at admission
waiting    it waits for capacity that is in use (pages, a slot, a place in a batch): healthy
stuck      nothing moves it and nothing that is at work will
forgotten  the router counts it, every engine that should know it answers, none does
orphan     an engine holds it, the router does not count it
unknown    an engine that may hold it does not answer
"""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.adapters.picture import Leg, RouterRequest
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.stages import Judgement, frozen, in_a_step, judge_legs
from pdctl.facts.missing import known

# A request in transit between two samples of two processes is not lost yet.
SETTLE = 3.0


@dataclass(frozen=True)
class Entry:
    """`lost` names the message that did not arrive: want, write, done, taken or room; "" otherwise."""

    id: str
    room: int | None
    verdict: str
    holder: str | None
    stage: str
    age: float
    stage_age: float
    since: float
    waiting_on: str | None
    why: str
    lost: str
    prefill: str | None
    decode: str | None
    prefill_stage: str | None = None
    decode_stage: str | None = None
    prefill_pages: int | None = None
    decode_pages: int | None = None

    @property
    def settled(self) -> bool:
        """True when there is nothing to tell an operator."""
        return self.verdict == "moving"


@dataclass(frozen=True)
class _Found:
    prefill: tuple[EngineView, Leg] | None = None
    decode: tuple[EngineView, Leg] | None = None

    @property
    def any(self) -> bool:
        return self.prefill is not None or self.decode is not None


def _find(facts: Facts, id: str, room: int | None) -> _Found:
    sides: dict[str, tuple[EngineView, Leg]] = {}
    for view in facts.engines:
        side = "prefill" if view.role == "prefill" else "decode"
        for leg in view.legs:
            if leg.id == id or (room is not None and leg.room == room):
                sides.setdefault(side, (view, leg))
    return _Found(sides.get("prefill"), sides.get("decode"))


def _entry(facts: Facts, request: RouterRequest | None, found: _Found, verdict: Judgement) -> Entry:
    leg = found.prefill[1] if found.prefill else (found.decode[1] if found.decode else None)
    prefill = found.prefill[0].name if found.prefill else _leg_engine(request, "prefill")
    decode = found.decode[0].name if found.decode else _leg_engine(request, "decode")
    stage_age = verdict.stage_age
    return Entry(
        id=request.id if request else (leg.id if leg else ""),
        room=request.room if request and request.room is not None else (leg.room if leg else None),
        verdict=verdict.verdict,
        holder=verdict.holder,
        stage=verdict.stage,
        age=request.age if request else (leg.age if leg else 0.0),
        stage_age=stage_age,
        since=facts.at - stage_age,
        waiting_on=verdict.waiting_on,
        why=verdict.why,
        lost=verdict.lost,
        prefill=prefill,
        decode=decode,
        prefill_stage=found.prefill[1].stage if found.prefill else None,
        decode_stage=found.decode[1].stage if found.decode else None,
        prefill_pages=found.prefill[1].pages if found.prefill else None,
        decode_pages=found.decode[1].pages if found.decode else None,
    )


def _leg_engine(request: RouterRequest | None, side: str) -> str | None:
    leg = None if request is None else (request.prefill if side == "prefill" else request.decode)
    return leg.engine if leg else None


def _pending(request: RouterRequest) -> list[str]:
    return [leg.engine for leg in (request.prefill, request.decode) if leg and leg.status == "pending"]


def _unheld(facts: Facts, request: RouterRequest, seen_before: bool) -> Judgement:
    """A request that the router counts and no answering engine holds."""
    age = request.stage_age
    if request.stage == "held":
        return Judgement("held", "router", "held", age, "admission", "the router holds admissions")
    if request.stage == "admitted":
        verdict = "moving" if age < SETTLE else "waiting"
        return Judgement(verdict, "router", "admitted", age, "pair", "no pair of engines is ready for it")
    views = [(name, facts.engine(name)) for name in _pending(request)]
    for name, view in views:
        if view is not None and view.fresh and not view.shows_requests:
            why = f"{name} may hold it and lists no requests"
            return Judgement("unknown", name, request.stage, age, None, why)
        if view is not None and (why := frozen(view)):
            return Judgement("unknown", name, request.stage, age, None, f"{name} may hold it; {why}")
        if view is None or not view.fresh:
            said = view.reach.value if view and not known(view.state) else "its state is old"
            return Judgement(
                "unknown", name, request.stage, age, None, f"{name} may hold it and does not answer ({said})"
            )
    if age < SETTLE or not seen_before:
        return Judgement("moving", "router", request.stage, age, None, "just sent or just ended")
    if any(view is not None and in_a_step(view, age) for _, view in views):
        return Judgement("moving", "router", request.stage, age, None, "it is taken in behind a step")
    names = " and ".join(name for name, _ in views) or "the engines"
    why = f"{names} answer and do not know it, and the router still waits"
    return Judgement("forgotten", "router", request.stage, age, "engines", why)


def join(facts: Facts) -> tuple[Entry, ...]:
    """Every request of the fleet, oldest first."""
    entries: list[Entry] = []
    joined: set[tuple[str, str]] = set()
    requests = facts.requests
    for request in requests if known(requests) else ():
        found = _find(facts, request.id, request.room)
        for side in (found.prefill, found.decode):
            if side:
                joined.add((side[0].name, side[1].id))
        if found.any:
            verdict = judge_legs(facts, found.prefill, found.decode, _leg_engine(request, "decode"))
        else:
            verdict = _unheld(facts, request, _seen_before(facts, request.id))
        entries.append(_entry(facts, request, found, verdict))
    entries += _unrouted(facts, joined, known(requests))
    return tuple(sorted(entries, key=lambda e: -e.age))


def _seen_before(facts: Facts, id: str) -> bool:
    return any(r.id == id for r in facts.requests_before)


def _unrouted(facts: Facts, joined: set[tuple[str, str]], router_known: bool) -> list[Entry]:
    """Requests on engines that the router does not count: sent past it, or it restarted."""
    entries = []
    seen: set[str] = set()
    for view in facts.engines:
        for leg in view.legs:
            if (view.name, leg.id) in joined or leg.id in seen:
                continue
            seen.add(leg.id)
            found = _find(facts, leg.id, leg.room)
            verdict = judge_legs(facts, found.prefill, found.decode, None)
            if router_known and verdict.verdict == "moving" and leg.age > 2 * SETTLE and not view.working:
                verdict = verdict.as_orphan()
            entries.append(_entry(facts, None, found, verdict))
    return entries
