"""The life of every request on this engine: who has it, its pages, its room, and exactly one end.

Everything here runs on the leader's main thread under the leader's lock. The transfer layer's callbacks
come from other threads and are turned into events by the leader before they reach this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.cache.pages import PageAllocator
from engine.core.errors import RequestError
from engine.core.types import FirstToken, Request, Sampled
from engine.group.counters import Counters
from engine.group.messages import Out
from engine.schedule.legs import Prealloc
from engine.schedule.scheduler import Plan, Scheduler
from engine.schedule.sequence import Sequence as Seq


class Rooms(Protocol):
    """The part of the transfer layer that a request's life needs."""

    def open(self, room: int, rid: str) -> object: ...
    def chunk(self, room: int, pages: Sequence[int], complete: int) -> object: ...
    def computed(self, room: int, tokens: int, pages: Sequence[int], first: FirstToken) -> object: ...
    def give_up(self, room: int) -> bool: ...
    def request(self, room: int, rid: str, address: str) -> object: ...
    def grant(self, room: int, pages: Sequence[int], tokens: int) -> object: ...
    def abort(self, room: int, by: str) -> object: ...
    def fail(self, room: int, code: str, message: str) -> object: ...


class Lifecycle:
    """Requests without a room are whole: prefill and decode happen here."""

    def __init__(
        self,
        scheduler: Scheduler,
        rooms: Rooms,
        eos: tuple[int, ...],
        max_model_len: int,
        emit: Callable[[Out], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.scheduler = scheduler
        self.pages: PageAllocator = scheduler.pages
        self.prealloc = Prealloc(scheduler)
        self.counters = Counters()
        self.sequences: dict[str, Seq] = {}
        self.by_room: dict[int, str] = {}
        self.draining = False
        self._rooms = rooms
        self._eos = eos
        self._max_model_len = max_model_len
        self._emit = emit
        self._clock = clock
        self._wall = wall
        # Owners whose pages a posted read or a remote write may still touch: quarantined at their end.
        self._reachable: set[str] = set()
        self._renamed: dict[str, str] = {}  # id → key of a live request that is not named by its id

    # requests in ------------------------------------------------------------------------------------

    def submit(self, request: Request, prefill_leg: bool) -> None:
        """Take a request, or end it at once with the reason."""
        refusal = self._refusal(request)
        if refusal is not None:
            self.refuse(request, *refusal)
            return
        self.counters.received += 1
        now = self._clock()
        seq = Seq(request, now, since=now, key=self._key(request.id))
        self.sequences[seq.id] = seq
        if request.room is None:
            self.scheduler.add(seq)
            return
        self.by_room[request.room] = seq.id
        try:
            self._open(seq, request.room, prefill_leg)
        except RequestError as error:
            self._emit(Out(id=request.id, code=error.code, message=str(error)))
            self._end(seq, "failed", error.code, now)

    def refuse(self, request: Request, code: str, message: str) -> None:
        """A request that is over before it has begun."""
        self.counters.received += 1
        self.counters.end("failed", code)
        self._emit(Out(id=request.id, code=code, message=message))

    def _key(self, id: str) -> str:
        """A name that owns nothing yet. Ids come back: a client may retry while pages are quarantined.

        The suffix has a space, which no id has.
        """
        key, uses = id, 1
        while key in self._reachable:
            uses += 1
            key = f"{id} {uses}"
        if key != id:
            self._renamed[id] = key
        return key

    def _open(self, seq: Seq, room: int, prefill_leg: bool) -> None:
        """Start a leg; RequestError while the room's earlier life is not over yet."""
        if prefill_leg:
            self._rooms.open(room, seq.id)
            seq.stop_after_prefill = True
            self._reachable.add(seq.id)
            self.scheduler.add(seq)
        else:
            self._rooms.request(room, seq.id, seq.request.peer or "")
            self.prealloc.add(seq)

    def _refusal(self, request: Request) -> tuple[str, str] | None:
        length = len(request.prompt)
        if self.draining:
            return "draining", "This engine is draining and takes no new request."
        if self.find(request.id, None) is not None:
            return "invalid_request", f"Request id {request.id} is in use by a running request."
        if request.room is not None and request.room in self.by_room:
            return "invalid_request", f"Room {request.room} is in use by a running request."
        if length >= self._max_model_len:
            return (
                "context_length_exceeded",
                f"The prompt has {length} tokens, the window holds {self._max_model_len}.",
            )
        need = self.scheduler.pages_for(length + 1)
        if need > self.pages.total:
            return (
                "context_length_exceeded",
                f"The prompt needs {need} KV pages, this engine has {self.pages.total}.",
            )
        return None

    def find(self, id: str, room: int | None) -> Seq | None:
        """The live request of this id, or of this room when `id` is empty."""
        key = self._renamed.get(id, id)
        return self.sequences.get(key or self.by_room.get(room if room is not None else -1, ""))

    # requests out -----------------------------------------------------------------------------------

    def abort(self, id: str, room: int | None, by: str) -> bool:
        """End a request on demand; False when there is none. `by` "stop" counts as a success."""
        seq = self.find(id, room)
        if seq is None:
            return False
        if by == "stop":
            self._end(seq, "done", "", self._clock())
            return True
        self._emit(Out(id=seq.request.id, code="aborted", message=f"The request was aborted by {by}."))
        if self._end(seq, "aborted", "aborted", self._clock()) and seq.request.room is not None:
            self._rooms.abort(seq.request.room, by)
        return True

    def fail(self, seq: Seq, code: str, message: str) -> None:
        """End a request as failed and tell its caller and the other leg."""
        self._emit(Out(id=seq.request.id, code=code, message=message))
        if self._end(seq, "failed", code, self._clock()) and seq.request.room is not None:
            self._rooms.fail(seq.request.room, code, message)

    def _end(self, seq: Seq, outcome: str, code: str, at: float) -> bool:
        """The one end of a request: off every queue, counted, its pages free or quarantined."""
        if self.sequences.pop(seq.id, None) is None:
            return False
        self._renamed.pop(seq.request.id, None)
        if seq.request.room is not None:
            self.by_room.pop(seq.request.room, None)
        self.scheduler.drop(seq)
        self.prealloc.drop(seq)
        if seq.stage == "inflight":
            self.counters.dwell.add(self._wall(), max(0.0, at - seq.since), outcome)
        self.counters.end(outcome, code)
        if code == "kv_corrupt":
            self.scheduler.distrust(seq)
        if seq.id in self._reachable:
            self.pages.quarantine(seq.id)
        else:
            self.pages.give_back(seq.id)
        return True

    # rooms ------------------------------------------------------------------------------------------

    def room_ended(self, rid: str, outcome: str, code: str, at: float) -> None:
        """The transfer layer settled a room for good (its caller was told already)."""
        seq = self.sequences.get(rid)
        if seq is None or (outcome == "done" and not seq.stop_after_prefill):
            return
        self._end(seq, outcome, code, at)

    def room_ready(self, rid: str, first: FirstToken) -> None:
        """A decode leg's KV is complete; its first token was sampled by prefill."""
        seq = self.sequences.get(rid)
        self.prealloc.arrived(rid)
        if seq is None:
            return
        seq.computed = len(seq.request.prompt)
        self.scheduler.resume(seq, self._clock())
        self.take_token(seq, first)

    def room_quiet(self, rid: str) -> None:
        """No write of that room can land any more."""
        self._reachable.discard(rid)
        self.pages.release(rid)

    def grant_legs(self, refused: bool) -> None:
        """Give waiting decode legs their pages, as far as pages and slots go."""
        for seq, pages in self.prealloc.grant(self._clock(), refused):
            room = seq.request.room
            if room is None:
                continue
            self._reachable.add(seq.id)
            tokens = len(seq.request.prompt)
            own = pages[: self.scheduler.pages_for(tokens)]
            self._rooms.grant(room, self.scheduler.in_order_of_transfer(own), tokens)

    def room_wanted(self, rid: str) -> None:
        """Decode has pages for this leg: it is computed before those that nobody asked for."""
        seq = self.sequences.get(rid)
        if seq is not None:
            seq.wanted = True

    def give_up(self, seq: Seq) -> bool:
        """Whether a prefill leg's pages may go: nobody has asked for them."""
        return seq.request.room is None or self._rooms.give_up(seq.request.room)

    # steps ------------------------------------------------------------------------------------------

    def commit(self, plan: Plan, tokens: list[Sampled]) -> None:
        """Account for a step that ran: KV progress of prefill legs, and one new token where due."""
        self.counters.tokens_prefilled += sum(len(s.tokens) for s in plan.batch.slices if len(s.tokens) > 1)
        # A sequence that ended while the step ran is gone from the table; its token is nobody's.
        pairs = zip(self.scheduler.commit(plan), tokens, strict=True)
        due = {seq.id: token for seq, token in pairs if self.sequences.get(seq.id) is seq}
        for seq in plan.sequences:
            if self.sequences.get(seq.id) is not seq:
                continue
            if seq.stop_after_prefill:
                self._hand_over(seq, due.get(seq.id))
            elif seq.id in due:
                self.take_token(seq, due[seq.id])

    def _hand_over(self, seq: Seq, first: FirstToken | None) -> None:
        room = seq.request.room
        if room is None:
            return
        pages = self.scheduler.in_order_of_transfer(self.pages.pages(seq.id))
        if first is None:
            self._rooms.chunk(room, pages, seq.computed // self.scheduler.limits.page_size)
            return
        self.counters.tokens_generated += 1
        seq.output.append(first.token)
        self.scheduler.to_inflight(seq, self._clock())
        self._rooms.computed(room, len(seq.request.prompt), pages, first)

    def take_token(self, seq: Seq, sampled: Sampled) -> None:
        """Append a generated token, tell the caller, and end the request where it is complete."""
        token = sampled.token
        seq.output.append(token)
        self.counters.tokens_generated += 1
        sampling = seq.request.sampling
        finish = None
        if token in sampling.stop_token_ids or (token in self._eos and not sampling.ignore_eos):
            finish = "stop"
        elif len(seq.output) >= sampling.max_tokens or not self._can_grow(seq):
            finish = "length"
        logprobs = [] if sampled.logprob is None else [sampled.logprob]
        self._emit(Out(id=seq.request.id, tokens=[token], finish=finish, logprobs=logprobs))
        if finish is not None:
            self._end(seq, "done", "", self._clock())

    def _can_grow(self, seq: Seq) -> bool:
        """Whether the window and the pool, were it empty, hold one more token."""
        return (
            seq.length < self._max_model_len and self.scheduler.pages_for(seq.length + 1) <= self.pages.total
        )
