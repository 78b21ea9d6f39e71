"""Decode's side of rooms: from the request to KV in its pages, and to quiet after a failure.

waiting -> preallocated -> transferring -> done; failed and aborted from anywhere, once. Pages that were
named in a Want and not handed over stay untouchable until prefill says Quiesced or its life is fenced.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Literal

from engine.core.errors import RequestError
from engine.core.settings import BY_NAME, Settings
from engine.faults import Faults
from engine.transfer import commands as c
from engine.transfer import messages as m
from engine.transfer.handshake import PeerKey
from engine.transfer.integrity import Tally
from engine.transfer.ports import DeadlinePort, LinkPort, Outbox, Outcome, Ranks, RoomView, Sink
from engine.transfer.rooms import Counters, Incoming

log = logging.getLogger("pdctl.engine.transfer")


class Receiver:
    """Thread-safe; every public method may be called from any thread, none blocks."""

    def __init__(
        self,
        *,
        ranks: Ranks,
        link: LinkPort,
        deadlines: DeadlinePort,
        sink: Sink,
        settings: Settings,
        clock: Callable[[], float],
        faults: Faults,
    ) -> None:
        self._ranks, self._faults = ranks, faults
        self._link, self._deadlines, self._sink = link, deadlines, sink
        self._settings, self._clock = settings, clock
        self._rooms: dict[int, Incoming] = {}
        self._up: dict[str, PeerKey] = {}
        self._refused: dict[str, Outcome] = {}
        self._tickets = itertools.count(1)
        self._box = Outbox()
        self.counters = Counters()

    def request(self, room: int, rid: str, address: str) -> None:
        """A request whose KV comes from the prefill at `address`. RequestError when the room is in use."""
        with self._box:
            if room in self._rooms:
                raise RequestError("invalid_request", f"Room {room} is in use by another request.")
            now = self._clock()
            entry = Incoming(room, rid, now, stage_at=now, ticket=next(self._tickets), hint=address)
            entry.peer = self._up.get(address)
            self._rooms[room] = entry
            if entry.peer is None and address in self._refused:
                self._end(entry, self._refused[address])
                return
            at = now + self._settings["prealloc"]
            self._deadlines.arm(("prealloc", room), "prealloc", at, lambda: self._fired(entry, "prealloc"))
            if entry.peer is None:
                at = now + self._settings["handshake"]
                self._deadlines.arm(("link", room), "handshake", at, lambda: self._fired(entry, "handshake"))
                self._box.put(self._link.demand, address)

    def grant(self, room: int, pages: Sequence[int], tokens: int) -> bool:
        """The room gets local `pages` for `tokens` prompt tokens; Want goes out once prefill is linked."""
        with self._box:
            entry = self._live(room)
            if entry is None or entry.granted:
                return False
            now = self._clock()
            self._deadlines.cancel(("prealloc", room))
            entry.move("preallocated", now)
            entry.pages, entry.tokens, entry.granted, entry.granted_at = list(pages), tokens, True, now
            self._go_on(entry)
            self._want(entry)
            return True

    def abort(self, room: int, by: str) -> bool:
        """End the room as aborted; False when it is unknown or has ended."""
        return self._finish(room, Outcome("aborted", "aborted", f"The request was aborted by {by}."))

    def fail(self, room: int, code: str, message: str) -> bool:
        """End the room as failed with a code of FAILURE_STATUS; False when it is unknown or has ended."""
        return self._finish(room, Outcome("failed", code, message))

    def timeouts_changed(self) -> None:
        """Apply changed prealloc, transfer, queue and handshake timeouts to the rooms that wait now."""
        with self._box:
            for entry in self._rooms.values():
                self._deadlines.rearm(("prealloc", entry.room), entry.opened_at + self._settings["prealloc"])
                self._deadlines.rearm(("transfer", entry.room), entry.word_at + self._settings["transfer"])
                self._deadlines.rearm(("turn", entry.room), entry.granted_at + self._settings["queue"])
                self._deadlines.rearm(("link", entry.room), entry.opened_at + self._settings["handshake"])

    def on_peer_up(self, peer: PeerKey, address: str) -> None:
        with self._box:
            self._up[address] = peer
            self._refused.pop(address, None)
            for entry in list(self._rooms.values()):
                if entry.ended and entry.peer == peer:
                    self._cancel(entry)
                elif not entry.ended and entry.peer is None and entry.hint == address:
                    entry.peer = peer
                    self._deadlines.cancel(("link", entry.room))
                    self._want(entry)

    def on_peer_lost(self, peer: PeerKey, reason: str) -> None:
        with self._box:
            self._up = {a: p for a, p in self._up.items() if p != peer}
            self._end_all(peer, f"Prefill {peer} was lost: {reason}")

    def on_peer_fenced(self, peer: PeerKey) -> None:
        """That life of the prefill is over: nothing it was writing can land any more."""
        with self._box:
            self._up = {a: p for a, p in self._up.items() if p != peer}
            self._end_all(peer, f"Prefill {peer} is gone.")
            for entry in [e for e in self._rooms.values() if e.peer == peer]:
                self._quiet(entry)

    def on_refused(self, address: str, code: str, message: str) -> None:
        """The prefill at `address` does not link with this engine, now or on a retry."""
        with self._box:
            outcome = Outcome("failed", code, message)
            self._refused[address] = outcome
            for entry in list(self._rooms.values()):
                if entry.peer is None and entry.hint == address and not entry.ended:
                    self._end(entry, outcome)

    def on_forgotten(self, address: str) -> None:
        """Nobody dials `address` any more; a new demand starts without the old refusal."""
        with self._box:
            self._refused.pop(address, None)

    def on_message(self, peer: PeerKey, message: m.RoomMessage) -> None:
        with self._box:
            entry = self._rooms.get(message.room)
            if entry is None or (entry.peer, entry.ticket) != (peer, message.ticket):
                self.counters.late_completions += not isinstance(message, m.Quiesced)
                return
            match message:
                case m.Quiesced() if entry.ended:
                    self._quiet(entry)
                case m.Heard() if entry.stage == "preallocated" and not entry.turn:
                    self._await_turn(entry)
                case m.Chunk() if not entry.ended:
                    self._go_on(entry)
                    if message.pages_done:
                        entry.move("transferring", self._clock())
                    entry.pages_done = max(entry.pages_done, message.pages_done)
                    self.counters.transfer_bytes += message.bytes - entry.bytes
                    entry.bytes = message.bytes
                case m.Done() if entry.wanted and not entry.ended and entry.done is None:
                    self._on_done(entry, peer, message)
                case m.Failed() if not entry.ended:
                    kind: Literal["aborted", "failed"] = "aborted" if message.code == "aborted" else "failed"
                    outcome = Outcome(kind, message.code, message.message)
                    entry.told(outcome, self._clock())
                    self._end(entry, outcome, tell=False)
                case _:
                    self.counters.late_completions += 1

    def on_report(self, report: c.Report) -> None:
        """A rank's report; those that are not about rooms are ignored."""
        if not isinstance(report, c.Checked):
            return
        with self._box:
            entry = self._rooms.get(report.room)
            if entry is None or entry.ended or entry.ticket != report.ticket or entry.tally is None:
                self.counters.late_completions += 1
                return
            if report.sums:
                entry.tally.add(report.rank, 0, report.sums)
            if report.wrong:
                entry.wrong = f"index-K of rank {report.rank}, {report.wrong}"
            entry.checked_ranks.add(report.rank)
            if len(entry.checked_ranks) == self._ranks.tp:
                self._compare(entry, entry.tally)

    def snapshot(self) -> list[RoomView]:
        """Rooms that have not ended or are not quiet yet."""
        with self._box:
            now = self._clock()
            return [e.view(now) for e in self._rooms.values()]

    def open_rooms(self, peer: PeerKey) -> int:
        with self._box:
            return sum(e.peer == peer and not e.ended for e in self._rooms.values())

    def _live(self, room: int) -> Incoming | None:
        entry = self._rooms.get(room)
        return entry if entry and not entry.ended else None

    def _finish(self, room: int, outcome: Outcome) -> bool:
        with self._box:
            entry = self._live(room)
            return entry is not None and self._end(entry, outcome)

    def _end_all(self, peer: PeerKey, message: str) -> None:
        for entry in [e for e in self._rooms.values() if e.peer == peer and not e.ended]:
            self._end(entry, Outcome("failed", "peer_lost", message), tell=False)

    def _want(self, entry: Incoming) -> None:
        if entry.peer is None or not entry.granted or entry.wanted:
            return
        entry.wanted, entry.sums = True, self._settings["checksum"] > 0
        want = m.Want(
            room=entry.room, ticket=entry.ticket, pages=entry.pages, tokens=entry.tokens, sums=entry.sums
        )
        self._box.put(self._link.send, entry.peer, want)

    def _await_turn(self, entry: Incoming) -> None:
        """Prefill has the Want and others to compute first: that wait is the queue's, not the transfer's."""
        entry.turn = True
        self._deadlines.cancel(("transfer", entry.room))
        at = entry.granted_at + self._settings["queue"]
        self._deadlines.arm(("turn", entry.room), "queue", at, lambda: self._fired(entry, "queue"))

    def _go_on(self, entry: Incoming) -> None:
        """From now on, prefill may be silent about the room for as long as the transfer deadline says."""
        entry.turn, entry.word_at = False, self._clock()
        self._deadlines.cancel(("turn", entry.room))
        at = entry.word_at + self._settings["transfer"]
        self._deadlines.arm(("transfer", entry.room), "transfer", at, lambda: self._fired(entry, "transfer"))

    def _on_done(self, entry: Incoming, peer: PeerKey, done: m.Done) -> None:
        self._go_on(entry)
        if done.tokens != entry.tokens:
            text = f"Prefill handed over {done.tokens} tokens, decode wanted {entry.tokens}."
            self._end(entry, Outcome("failed", "kv_transfer_failed", text))
            return
        tally = self._ranks.tally()
        problem = _unverifiable(tally, done, len(entry.pages)) if entry.sums else ""
        if problem:
            self._end(entry, Outcome("failed", "kv_transfer_failed", problem))
            return
        damage = self._faults.take_value("corrupt-page")
        index = self._ranks.indexed and self._settings["index_check"] > 0
        if not (entry.sums or index) and damage is None:
            self._take(entry, peer, done)
            return
        entry.done, entry.tally = done, tally
        flip = None if damage is None else entry.pages[min(int(damage), len(entry.pages) - 1)]
        check = c.Check(
            room=entry.room,
            ticket=entry.ticket,
            pages=entry.pages,
            tokens=entry.tokens,
            sums=entry.sums,
            index=index,
            flip=flip,
        )
        self._box.put(self._ranks.broadcast, check)

    def _compare(self, entry: Incoming, tally: Tally) -> None:
        """All ranks have summed: the KV is taken when it is what prefill stored."""
        if entry.done is None or entry.peer is None:
            return
        where = entry.wrong
        if entry.sums and entry.done.sums is not None:
            where = where or tally.unequal() or tally.differs(entry.done.sums)
        if entry.sums or where:
            self.counters.kv_corrupt += bool(where)
            self.counters.kv_verified += not where
        if not where:
            self._take(entry, entry.peer, entry.done)
            return
        log.error("kv_corrupt room=%s request=%s peer=%s %s", entry.room, entry.rid, entry.peer, where)
        text = f"KV arrived from {entry.peer.instance} with other bits than it has there: {where}."
        if entry.wrong:
            text = f"KV that arrived from {entry.peer.instance} is not what was computed: {where}."
        self._end(entry, Outcome("failed", "kv_corrupt", text))

    def _take(self, entry: Incoming, peer: PeerKey, done: m.Done) -> None:
        self._box.put(self._link.send, peer, m.Taken(room=entry.room, ticket=entry.ticket))
        self.counters.transfer_seconds += max(self._clock() - entry.granted_at, 0.0)
        self._end(entry, Outcome("done"), tell=False)
        self._box.put(self._sink.ready, entry.room, entry.rid or "", done.first)

    def _fired(self, entry: Incoming, name: str) -> bool | float:
        with self._box:
            since, code, what, met = {
                "prealloc": (entry.opened_at, "prealloc_timeout", "No pages were free", entry.granted),
                "transfer": (entry.word_at, "kv_transfer_timeout", _late(entry), entry.turn),
                "queue": (entry.granted_at, "queue_timeout", "Prefill did not begin to compute the prompt",
                          not entry.turn),
                "handshake": (entry.opened_at, "link_failed", f"Prefill {entry.hint} was not linked",
                              entry.peer is not None),
            }[name]  # fmt: skip
            value, now = self._settings[name], self._clock()
            if entry.ended or met:
                return False
            if now < since + value:
                return since + value
            entry.fired(name, value, now - since, code)
            text = f"{what} within {BY_NAME[name].env}={value:g} s."
            return self._end(entry, Outcome("failed", code, text))

    def _end(self, entry: Incoming, outcome: Outcome, tell: bool = True) -> bool:
        """The only way into a terminal stage."""
        if not entry.move(outcome.kind, self._clock()):
            self.counters.late_completions += 1
            return False
        entry.outcome = outcome
        for name in ("prealloc", "transfer", "turn", "link"):
            self._deadlines.cancel((name, entry.room))
        self.counters.ended(entry.peer, outcome, self._clock())
        self._box.put(self._sink.ended, entry.room, entry.rid or "", outcome)
        if tell:
            self._cancel(entry)
        if outcome.kind == "done" or not entry.wanted:
            self._quiet(entry)
        return True

    def _cancel(self, entry: Incoming) -> None:
        if entry.peer is None or entry.outcome is None:
            return
        code, message = entry.outcome.code, entry.outcome.message
        cancel = m.Cancel(room=entry.room, ticket=entry.ticket, code=code, message=message)
        self._box.put(self._link.send, entry.peer, cancel)

    def _quiet(self, entry: Incoming) -> None:
        del self._rooms[entry.room]
        self._box.put(self._sink.quiet, entry.room, entry.rid or "")


def _late(entry: Incoming) -> str:
    if entry.done is not None:
        return "The KV was not verified"
    after = f" after page {entry.pages_done} of {len(entry.pages)}" if entry.pages_done else ""
    return f"Prefill handed over no KV{after}"


def _unverifiable(tally: Tally, done: m.Done, pages: int) -> str:
    """Why the checksums that were asked for are of no use, or an empty string."""
    if done.sums is None:
        return "Prefill sent no checksums and PD_KV_CHECKSUM asks for them: it is of an earlier release."
    problem = tally.misfit(done.sums, done.tokens, pages)
    return f"Prefill sent checksums that do not fit: {problem}." if problem else ""
