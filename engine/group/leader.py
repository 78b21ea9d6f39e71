"""The leader rank: its main thread schedules and steps; everybody else sends it events."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from engine.cache.pages import PageAllocator
from engine.cache.prefix import Prefixes
from engine.core.errors import RequestError
from engine.core.settings import Settings
from engine.core.types import Batch, FirstToken, Request, Sampled, Sampling, Shape
from engine.faults import Faults
from engine.group import document
from engine.group.guiding import Guiding
from engine.group.lifecycle import Lifecycle
from engine.group.messages import EngineConfig, Out
from engine.schedule.scheduler import Limits, Plan, Scheduler
from engine.schedule.sequence import Sequence
from engine.transfer.coordinator import Transfer
from engine.transfer.deadlines import log_fired
from engine.transfer.ports import Outcome

IDLE_WAIT = 0.05
Event = Callable[[], None]


class Runner(Protocol):
    """What a leader needs of the model runner."""

    max_model_len: int
    eos: tuple[int, ...]
    digest: str
    shape: Shape

    def run(self, batch: Batch) -> torch.Tensor | None: ...


class Leader:
    """One engine's scheduler loop. `broadcast` hands a batch to the other ranks before this one runs it."""

    def __init__(
        self,
        config: EngineConfig,
        settings: Settings,
        runner: Runner,
        sample: Callable[[torch.Tensor, list[tuple[Sampling, int]], Mapping[int, bytes]], list[Sampled]],
        broadcast: Callable[[Batch], None],
        emit: Callable[[Out], None],
        faults: Faults,
    ) -> None:
        self.config = config
        self.settings = settings
        self.faults = faults
        self.lock = threading.Lock()
        self.transfer: Transfer
        self._runner = runner
        self._sample = sample
        self._broadcast = broadcast
        self._emit = emit
        self._guiding = Guiding(config.model, runner.eos)
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stop = False
        self.steps = 0
        self.last_step: float | None = None
        self.step_started: float | None = None
        self._stalled_since: float | None = None
        self.turned = time.monotonic()
        # The pool's last page is the transfer layer's scratch page and is never handed out.
        pages = PageAllocator(config.pages - 1)
        state_pages = runner.shape.state_pages
        limits = Limits(config.token_budget, config.max_running, config.page_size, state_pages)
        prefixes = Prefixes(pages, config.page_size, runner.digest, self._reuses)
        self._scheduler = Scheduler(limits, pages, lambda seq: self.life.give_up(seq), prefixes)
        self.life: Lifecycle

    def attach(self, transfer: Transfer) -> None:
        """Bind the transfer layer before the loop runs."""
        self.transfer = transfer
        self.life = Lifecycle(
            self._scheduler,
            transfer,
            self._runner.eos,
            self._runner.max_model_len,
            self._emit,
            time.monotonic,
            time.time,
        )

    def _reuses(self) -> bool:
        """Whether prompts share what they begin with.

        A decode computes none, and its KV comes in whole. Pages of state are of one moment of one sequence.
        """
        whole = self.config.role != "decode" and not self._runner.shape.state_pages
        return whole and self.settings["prefix"] > 0

    # from any thread --------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Run `event` on the main thread, between two steps."""
        self._inbox.put(event)

    def submit(self, request: Request) -> None:
        leg, rid = self.config.role == "prefill", request.id
        at = time.monotonic() + self.settings["queue"]
        self.transfer.deadlines.arm(("queue", rid), "queue", at, lambda: self._queued(rid))
        try:
            if request.grammar is not None:
                self._guiding.prepare()
        except RequestError as error:
            code, message = error.code, error.message
            self.post(lambda: self.life.refuse(request, code, message))
        else:
            self.post(lambda: self.life.submit(request, leg))

    def _queued(self, rid: str) -> bool | float:
        """The queue deadline: a request that waits for a first place in a batch ends; no other is meant."""
        seq, now, limit = self.life.find(rid, None), time.monotonic(), self.settings["queue"]
        if seq is None or seq.holding:
            return False
        if not seq.stop_after_prefill and (seq.stage != "waiting" or seq.preempted):
            return False
        # A prefill leg may be sent back to wait, and that wait counts from then on.
        since = seq.since if seq.stage == "waiting" else now
        if since + limit > now:
            return since + limit
        on = f", waiting on {seq.waiting_on}" if seq.waiting_on else ""
        message = f"In no batch after PD_QUEUE_TIMEOUT={limit:g} s{on}."
        self._late(seq, "queue", limit, now - since, "queue_timeout", message)
        return True

    def _late(self, seq: Sequence, name: str, value: float, age: float, code: str, message: str) -> None:
        """End a request by a deadline: its line in the log, its caller told, the rest between two steps."""
        request, pages = seq.request, len(self.life.pages.pages(seq.id))
        log_fired(code, name, value, age, request.peer, room=request.room, request=request.id, pages=pages)
        self._emit(Out(id=request.id, code=code, message=message))
        self.post(lambda: self.life.fail(seq, code, message))

    def timeouts_changed(self) -> None:
        """Deadlines that are armed move to the values now in force."""
        self.transfer.timeouts_changed()
        for seq in list(self.life.sequences.values()):
            if seq.stage == "waiting":
                at = seq.since + self.settings["queue"]
                self.transfer.deadlines.rearm(("queue", seq.request.id), at)

    def relink(self, peer: str) -> dict[str, object]:
        """Of any thread; see Transfer.relink. `peer` is an instance, or a name that the command line gave."""
        known = (address for address, name in self.config.peer_names.items() if name == peer)
        return self.transfer.relink(peer, next(known, peer))

    def abort(self, id: str, room: int | None, by: str) -> None:
        self.post(lambda: self._aborted(id, room, by))

    def ended(self, room: int, rid: str, outcome: Outcome) -> None:
        """Transfer sink: a room has its final state. The caller hears of it before this thread goes on."""
        at = time.monotonic()
        seq = self.life.sequences.get(rid)
        if seq is not None and outcome.kind != "done":
            self._emit(Out(id=seq.request.id, code=outcome.code, message=outcome.message))
        elif seq is not None and seq.stop_after_prefill:
            self._emit(Out(id=seq.request.id, tokens=list(seq.output), finish="handed_over"))
        self.post(lambda: self.life.room_ended(rid, outcome.kind, outcome.code, at))

    def wanted(self, room: int, rid: str) -> None:
        """Transfer sink: decode has said where this prefill leg's KV goes."""
        self.post(lambda: self.life.room_wanted(rid))

    def ready(self, room: int, rid: str, first: FirstToken) -> None:
        """Transfer sink: a decode room's KV is complete."""
        self.post(lambda: self.life.room_ready(rid, first))

    def quiet(self, room: int, rid: str) -> None:
        """Transfer sink: no write of this room can land any more."""
        self.post(lambda: self.life.room_quiet(rid))

    def stop(self) -> None:
        self._stop = True
        self.post(lambda: None)

    # main thread ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop`: handle events, plan, step."""
        while not self._stop:
            with self.lock:
                self._handle_events()
                self.life.grant_legs(self.faults.armed("refuse-pages"))
                plan = self._scheduler.plan(time.monotonic())
                runnable = self._scheduler.runnable
            self.turned = time.monotonic()
            self._stalled_since = (self._stalled_since or self.turned) if runnable else None
            if plan is not None and not self.faults.take("stop-steps"):
                self._step(plan)
            else:
                self._wait()

    def _wait(self) -> None:
        """Nothing to run: sleep until an event comes, a short time at most."""
        try:
            event = self._inbox.get(timeout=IDLE_WAIT)
        except queue.Empty:
            return
        with self.lock:
            event()

    def _handle_events(self) -> None:
        while True:
            try:
                event = self._inbox.get_nowait()
            except queue.Empty:
                return
            event()

    def _step(self, plan: Plan) -> None:
        self.step_started = time.monotonic()
        self._broadcast(plan.batch)
        logits = self._runner.run(plan.batch)
        tokens: list[Sampled] = []
        stuck: list[tuple[Sequence, str]] = []
        due = [s for s, piece in zip(plan.sequences, plan.batch.slices, strict=True) if piece.sample]
        if due and logits is not None:
            allowed, stuck = self._guiding.allowed(due)
            tokens = self._sample(logits, [(s.request.sampling, s.length) for s in due], allowed)
        with self.lock:
            for seq, why in stuck:
                self.life.fail(seq, "engine_failed", why)
            self.life.commit(plan, tokens)
        self.steps += 1
        self.last_step, self.step_started, self._stalled_since = time.monotonic(), None, None

    def _aborted(self, id: str, room: int | None, by: str) -> None:
        self.life.abort(id, room, by)

    # drain ------------------------------------------------------------------------------------------

    def drain(self, timeout: float | None) -> None:
        """Refuse new requests; after `timeout` (default PD_DRAIN_TIMEOUT) fail what still runs."""
        limit = self.settings["drain"] if timeout is None else timeout
        self.life.draining = True
        at = time.monotonic() + limit
        self.transfer.deadlines.arm(("drain",), "drain", at, lambda: self._drained(limit))

    def resume(self) -> None:
        self.transfer.deadlines.cancel(("drain",))
        self.life.draining = False

    def _drained(self, limit: float) -> bool:
        """The drain deadline: what still runs ends."""
        left = list(self.life.sequences.values()) if self.life.draining else []
        message = f"The engine was drained and this did not end within PD_DRAIN_TIMEOUT={limit:g} s."
        for seq in left:
            self._late(seq, "drain", limit, time.monotonic() - seq.arrived, "draining", message)
        return bool(left)

    # what it shows ----------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The leader's part of /v1/state; called by the publisher thread."""
        now = time.monotonic()
        rooms = self.transfer.rooms()
        with self.lock:
            entries = document.requests(self.life, rooms, now)
            counters = self.life.counters.document() | {"preemptions": self._scheduler.preemptions}
            prefixes = self._scheduler.prefixes
            counters |= {"prefix_tokens": prefixes.asked, "prefix_tokens_hit": prefixes.hit}
            pages = document.pages(self.life)
            dwell = self.life.counters.dwell.document()
            tokens = (self.life.counters.tokens_generated, self.life.counters.tokens_prefilled)
            draining, empty = self.life.draining, not self.life.sequences
        counters |= self.transfer.counters_document()
        return {
            "draining": draining,
            "empty": empty,
            "progress": {
                "steps": self.steps,
                # The loop turns while this is read: what it did after `now` is not in the future.
                "last_step_age_s": None if self.last_step is None else round(max(now - self.last_step, 0), 3),
                "stepping_s": None
                if self.step_started is None
                else round(max(now - self.step_started, 0), 3),
                "loop_age_s": round(max(now - self.turned, 0), 3),
                "stalled_s": None
                if self._stalled_since is None
                else round(max(now - self._stalled_since, 0), 3),
                "tokens_generated": tokens[0],
                "tokens_prefilled": tokens[1],
            },
            "queues": document.queues(entries),
            "requests": entries,
            "peers": self.transfer.peers_document(),
            "pages": pages,
            "counters": counters,
            "dwell": dwell,
            "timeouts": self.settings.document(),
            "faults": self.faults.document(),
            "linked": len(self.transfer.linked()),
        }


def admin(leader: Leader, verb: str, args: dict[str, Any]) -> dict[str, Any]:
    """One admin verb on the leader's main thread; RequestError or ConfigError on bad arguments."""
    if verb == "abort":
        room = args.get("room")
        known = leader.life.abort(
            str(args.get("id", "")), None if room is None else int(room), str(args.get("by", "admin"))
        )
        return {"known": known}
    if verb == "drain":
        timeout = args.get("timeout")
        leader.drain(None if timeout is None else float(timeout))
    elif verb == "resume":
        leader.resume()
    elif verb == "flush":
        return {"pages": leader.life.pages.flush()}
    elif verb == "relink":
        return leader.relink(str(args.get("peer")))
    elif verb == "timeouts":
        leader.settings.set_all(args, time.time())
        leader.timeouts_changed()
        return leader.settings.document()
    elif verb == "faults":
        leader.faults.set(
            str(args.get("name")),
            bool(args.get("armed", True)),
            int(args.get("count", 0)),
            float(args.get("value", 0.0)),
        )
        return leader.faults.document()
    else:
        raise RequestError("invalid_request", f"There is no admin verb {verb}.", 404)
    return {"draining": leader.life.draining}
