"""Who holds a request that at least one engine knows, and whether anything will move it; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdctl.adapters.picture import Leg
from pdctl.diagnose.facts import BEAT, STEP, EngineView, Facts
from pdctl.diagnose.words import count, span
from pdctl.facts.missing import known

Side = tuple[EngineView, Leg] | None
LEAST = 3.0


@dataclass(frozen=True)
class Judgement:
    """One request's standing; see ledger.py for the verdicts and Entry for `lost`."""

    verdict: str
    holder: str | None
    stage: str
    stage_age: float
    waiting_on: str | None
    why: str
    lost: str = ""

    def as_orphan(self) -> Judgement:
        return replace(self, verdict="orphan", why="the router does not count it, the engine still holds it")


def patience(view: EngineView) -> float:
    """Seconds since decode gave it a place in which a hand-over is healthy here: 3 s, or ten times what the
    writes of one took on average. How long others waited for their places says nothing of it.

    Never more than half the watchdog's value, so that a pinned request is named before it is ended.
    """
    state = view.state
    if not known(state):
        return LEAST
    counted = state.counters if known(state.counters) and state.counters.transfers_ok else None
    writes = counted.transfer_seconds / counted.transfers_ok if counted else 0.0
    limit = state.timeouts.get("inflight")
    return max(1.0, min(max(LEAST, 10.0 * writes), limit.value / 2 if limit else 60.0))


def frozen(view: EngineView) -> str:
    """Why nothing this engine holds can move, "" while something may.

    Its HTTP server and the leader's publisher speak on while another rank stands, and the step that waits
    for that rank looks like a long one.
    """
    process, state = view.member.process, view.state
    if known(process) and process.stopped:
        pids = " ".join(map(str, process.stopped))
        return f"{view.name} is frozen: pid {pids} is stopped"
    if not known(state):
        return ""
    if known(state.snapshot_age) and not view.fresh:
        return f"{view.name} is frozen: it last published its state {span(state.snapshot_age)} ago"
    ages = ((r.rank, r.heartbeat_age) for r in state.ranks if r.heartbeat_age is not None)
    silent = [f"rank {rank} was last heard {span(age)} ago" for rank, age in ages if age > BEAT]
    return f"{view.name} is frozen: {', '.join(silent)}" if silent else ""


def in_a_step(view: EngineView, age: float) -> bool:
    """Whether one step has been under way for as long as that: its scheduler takes requests in between two,
    so that one which came since is not shown yet.
    """
    state = view.state
    if not known(state) or not known(state.progress) or state.progress.stepping is None:
        return False
    return age - 1.0 < state.progress.stepping < STEP


def _judge(side: tuple[EngineView, Leg], verdict: str, why: str, lost: str = "") -> Judgement:
    view, leg = side
    return Judgement(verdict, view.name, leg.stage, leg.stage_age, leg.waiting_on, why, lost)


def judge_legs(facts: Facts, prefill: Side, decode: Side, decode_name: str | None) -> Judgement:
    """The judgement for a request with a prefill leg, a decode leg or both."""
    if prefill and (prefill[1].stage == "inflight" or prefill[1].waiting_on == "decode"):
        return _inflight(facts, prefill, decode, decode_name)
    if prefill:
        return _computing(prefill, "its prompt is computed")
    if decode:
        return _on_decode(facts, decode)
    return Judgement("unknown", None, "unknown", 0.0, None, "no leg of it was seen")


def _computing(side: tuple[EngineView, Leg], doing: str) -> Judgement:
    view, leg = side
    if why := frozen(view):
        return _judge(side, "stuck", why, "step")
    if view.working:
        waits = leg.stage == "waiting" and leg.stage_age > 3.0
        return _judge(side, "waiting" if waits else "moving", "it waits for a place" if waits else doing)
    if leg.stage_age < 10.0:
        return _judge(side, "moving", doing)
    return _judge(side, "stuck", f"{view.name} holds it and makes no step", "step")


def _inflight(
    facts: Facts, prefill: tuple[EngineView, Leg], decode: Side, decode_name: str | None
) -> Judgement:
    view, leg = prefill
    if decode and decode[1].waiting_on == "turn":
        return _computing(prefill, "its prompt is next")  # prefill has the Want, whatever its last step knew
    if _handed_over(leg, decode):
        doing = f"it was handed over; {view.name} settles it behind the step that is under way"
        return _on_decode(facts, decode) if decode else _computing(prefill, doing)
    earlier = view.before(leg)
    if earlier is not None and earlier.bytes != leg.bytes:
        return _judge(prefill, "moving", "its KV is being written")
    if why := frozen(view):
        return _judge(prefill, "stuck", why, "step")
    if decode and (why := frozen(decode[0])):
        return _judge(decode, "stuck", why, "peer")
    if decode and decode[1].stage == "waiting":
        return _no_pages(prefill, decode)
    # A decode that has just granted it a place moved it, however long the prefill waited for that.
    still = min(leg.stage_age, decode[1].stage_age) if decode else leg.stage_age
    if still < patience(view):
        why = "its KV is being handed over" if leg.stage == "inflight" else "decode is about to ask for it"
        return _judge(prefill, "moving", why)
    if decode is None:
        return _untaken(facts, prefill, decode_name)
    return _pinned(prefill, decode)


def _handed_over(leg: Leg, decode: Side) -> bool:
    """The transfer layer has ended its room; the scheduler, which may be inside a step, has yet to see it."""
    waits = decode is not None and decode[1].stage in ("preallocated", "transferring")
    return leg.stage == "inflight" and leg.waiting_on is None and not waits


def _untaken(facts: Facts, prefill: tuple[EngineView, Leg], decode_name: str | None) -> Judgement:
    """No decode shows it. Where nobody names the one that should take it, it is one of the cell's."""
    named = facts.engine(decode_name or (prefill[1].peer or "").split("/")[0])
    takers = (named,) if named else facts.cell(prefill[0].member.cell, "decode")
    for other in takers:
        if not other.fresh:
            said = "its state is old" if known(other.state) else other.reach.value
            why = f"{other.name} should take its KV and does not answer ({said})"
            return _judge(prefill, "stuck", why, "peer")
        if why := frozen(other):
            return _judge(prefill, "stuck", f"{other.name} should take its KV; {why}", "peer")
    if not takers:
        return _judge(prefill, "stuck", "no decode was looked at that could take its KV", "unseen")
    names = " and ".join(other.name for other in takers)
    knows = "answers and does not know" if len(takers) == 1 else "answer and do not know"
    return _judge(prefill, "stuck", f"{names} {knows} this room", "room")


def _idle_pages(view: EngineView, need: int) -> int:
    """Pages that were free in both samples beyond `need` and one for each running sequence; 0 if none."""
    both = view.pair.both
    if not known(both):
        return 0
    spare = []
    for state in both:
        if not known(state.pages):
            return 0
        running = state.queues.get("running")
        spare.append(state.pages.free - need - (running.depth if running else 0))
    return max(0, min(spare))


def _kept(leg: Leg) -> int:
    """Tokens that must have a place before the next one is generated: of a request that was put back, what
    it had generated too.
    """
    return leg.prompt_tokens + leg.output_tokens


def _no_pages(prefill: Side, decode: tuple[EngineView, Leg]) -> Judgement:
    """Decode grants no place: healthy while its places are in use, a stall when pages lie free."""
    view, leg = decode
    state = view.state
    size = state.pages.page_size if known(state) and known(state.pages) else 1
    # Pages are granted in a queue's order: who is first is not told, so the largest need must be covered.
    waiting = [other for other in view.legs if other.waiting_on == "pages"]
    tokens = max([prefill[1].prompt_tokens if prefill else 0, *(_kept(other) for other in (leg, *waiting))])
    need = -(-(tokens + 1) // size)
    spare = _idle_pages(view, need)
    if leg.waiting_on == "pages" and spare > 0 and view.before(leg) is not None and leg.stage_age > 3.0:
        why = f"{view.name} grants it no pages although {spare + need} lie free and it needs {need}"
        return _judge(decode, "stuck", why, "grant")
    wait_for_kv = [other for other in view.legs if other.stage in ("preallocated", "transferring")]
    idle = not any(other.stage in ("ready", "running") for other in view.legs)
    if view.fresh and idle and wait_for_kv:
        held = count(len(wait_for_kv), "request that waits", "requests that wait")
        return _judge(decode, "waiting", f"the places of {view.name} are held by {held} for KV")
    if not view.fresh or (not view.working and leg.stage_age > 30.0):
        return _judge(decode, "stuck", f"{view.name} grants it no place and makes no step", "step")
    return _judge(decode, "waiting", f"{view.name} has no free {leg.waiting_on or 'place'} for it yet")


def _pinned(prefill: tuple[EngineView, Leg], decode: tuple[EngineView, Leg]) -> Judgement:
    """Both sides hold it and no byte moves: the waiting side tells which message was lost."""
    (view, leg), (other, peer) = prefill, decode
    if leg.waiting_on in ("want", "decode"):
        why = f"{other.name} asked for its pages ({peer.stage}), {view.name} never saw the Want"
        asked = min(leg.stage_age, peer.stage_age)  # before that it waited for decode, and rightly so
        return replace(_judge(prefill, "stuck", why, "want"), stage_age=asked)
    if leg.waiting_on == "taken" and peer.stage in ("preallocated", "transferring"):
        why = f"{view.name} wrote everything, {other.name} still waits for the Done"
        return _judge(prefill, "stuck", why, "done")
    if leg.waiting_on == "taken":
        why = f"{other.name} has it ({peer.stage}), {view.name} never saw the Taken"
        return _judge(prefill, "stuck", why, "taken")
    why = f"the write from {view.name} to {other.name} stands at {leg.bytes} bytes"
    return _judge(prefill, "stuck", why, "write")


def _on_decode(facts: Facts, decode: tuple[EngineView, Leg]) -> Judgement:
    view, leg = decode
    if why := frozen(view):
        return _judge(decode, "stuck", why, "step")
    if leg.stage in ("preallocated", "transferring"):
        earlier = view.before(leg)
        moved = earlier is not None and (earlier.bytes != leg.bytes or earlier.stage != leg.stage)
        if moved or leg.stage_age < 3.0:
            return _judge(decode, "moving", "its KV arrives")
        prefills = facts.cell(view.member.cell, "prefill")
        blind = [p.name for p in prefills if not p.fresh or frozen(p)]
        if blind:
            return _judge(decode, "stuck", f"it waits for KV from {blind[0]}, which does not answer", "peer")
        if busy := next((p for p in prefills if p.working and leg.waiting_on == "turn"), None):
            return _judge(decode, "waiting", f"{busy.name} has heard of it and is at work on others")
        if any(in_a_step(p, leg.stage_age) for p in prefills):
            return _judge(decode, "moving", "prefill takes it in behind the step that is under way")
        return _judge(decode, "stuck", "it waits for KV that no prefill holds any more", "room")
    if leg.stage == "waiting" and leg.stage_age > 3.0:
        return _no_pages(None, decode)
    return _computing(decode, "its tokens are generated")
