"""Prefill's side of rooms: from the first computed page to Taken, and to quiet after a failure.

waiting -> prefilling -> inflight -> done; failed and aborted from anywhere, once. No I/O of its own:
commands leave by Ranks, messages by LinkPort, time comes from `clock`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from engine.core.errors import RequestError
from engine.core.settings import BY_NAME, Settings
from engine.core.types import FirstToken
from engine.faults import Faults
from engine.transfer import commands as c
from engine.transfer import messages as m
from engine.transfer.handshake import PeerKey
from engine.transfer.ports import DeadlinePort, LinkPort, Outbox, Outcome, Ranks, RoomView, Sink, Target
from engine.transfer.rooms import Counters, Outgoing, Recent, want_problem

log = logging.getLogger("pdctl.engine.transfer")


class Sender:
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
        legacy: bool = False,
    ) -> None:
        self._ranks, self._link, self._deadlines, self._sink = ranks, link, deadlines, sink
        self._settings, self._clock, self._faults, self._legacy = settings, clock, faults, legacy
        self._rooms: dict[int, Outgoing] = {}
        self._recent = Recent()
        self._peers: dict[PeerKey, Target] = {}
        self._seq = 0
        self._box = Outbox()
        self.counters = Counters()

    def open(self, room: int, rid: str, peer_hint: str | None = None) -> None:
        """A request with this room was accepted here. RequestError when the room is in use."""
        with self._box:
            entry = self._rooms.get(room)
            if entry and (entry.rid is not None or entry.ended):
                raise RequestError("invalid_request", f"Room {room} is in use by another request.")
            now = self._clock()
            doomed = None if entry else self._recent.doomed(room)
            if entry is None:
                entry = self._rooms[room] = Outgoing(room, rid, now, stage_at=now)
            entry.rid, entry.opened_at, entry.stage_at, entry.hint = rid, now, now, peer_hint
            self._deadlines.cancel(("want", room))
            if doomed:
                self._end(entry, doomed, tell=False)
            elif entry.dst is not None:
                self._box.put(self._sink.wanted, room, rid)

    def chunk(self, room: int, pages: Sequence[int], complete: int) -> bool:
        """`pages` are the room's local pages so far, in logical order; the first `complete` are written."""
        with self._box:
            entry = self._live(room)
            if entry is None or entry.tokens is not None:
                return False
            self._begin(entry, "prefilling", self._clock())
            entry.pages, entry.complete = list(pages), complete
            self._pump(entry)
            return True

    def computed(self, room: int, tokens: int, pages: Sequence[int], first: FirstToken) -> bool:
        """Prefill is over: all `pages` hold the KV of `tokens` tokens. The inflight watchdog starts."""
        with self._box:
            entry = self._live(room)
            if entry is None:
                return False
            now = self._clock()
            self._begin(entry, "inflight", now)
            entry.computed_at, entry.tokens, entry.first = now, tokens, first
            entry.pages, entry.complete = list(pages), len(pages)
            at = now + self._settings["inflight"]
            self._deadlines.arm(("inflight", room), "inflight", at, lambda: self._inflight_fired(entry))
            self._pump(entry)
            return True

    def give_up(self, room: int) -> bool:
        """Forget what was computed, to begin again; False once decode has asked for it, or it ended."""
        with self._box:
            entry = self._live(room)
            if entry is None or entry.dst is not None:
                return False
            entry.move("waiting", self._clock())
            self._deadlines.cancel(("inflight", room))
            entry.pages, entry.complete, entry.tokens, entry.first = [], 0, None, None
            return True

    def abort(self, room: int, by: str) -> bool:
        """End the room as aborted; False when it is unknown or has ended."""
        return self._finish(room, Outcome("aborted", "aborted", f"The request was aborted by {by}."))

    def fail(self, room: int, code: str, message: str) -> bool:
        """End the room as failed with a code of FAILURE_STATUS; False when it is unknown or has ended."""
        return self._finish(room, Outcome("failed", code, message))

    def timeouts_changed(self) -> None:
        """Apply changed inflight and queue timeouts to the rooms that wait now."""
        with self._box:
            for entry in self._rooms.values():
                self._deadlines.rearm(
                    ("inflight", entry.room), entry.computed_at + self._settings["inflight"]
                )
                self._deadlines.rearm(("want", entry.room), entry.opened_at + self._settings["queue"])

    def on_peer_up(self, peer: PeerKey, pages: int, page_size: int | None = None) -> None:
        """Linked, all ranks warm; see Ranks.target."""
        with self._box:
            self._peers[peer] = self._ranks.target(pages, page_size)

    def on_peer_lost(self, peer: PeerKey, reason: str) -> None:
        with self._box:
            self._peers.pop(peer, None)
            if self._legacy:
                return
            lost = Outcome("failed", "peer_lost", f"Decode {peer} was lost: {reason}")
            for entry in [e for e in self._rooms.values() if e.peer == peer and not e.ended]:
                self._end(entry, lost, tell=False)

    def on_message(self, peer: PeerKey, message: m.RoomMessage) -> None:
        with self._box:
            match message:
                case m.Want():
                    self._on_want(peer, message)
                case m.Taken():
                    self._on_taken(peer, message)
                case m.Cancel():
                    self._on_cancel(peer, message)
                case _:
                    self.counters.late_completions += 1

    def on_report(self, report: c.Report) -> None:
        """A rank's report; those that are not about rooms are ignored."""
        with self._box:
            match report:
                case c.Posted():
                    self._on_posted(report)
                case c.PostError():
                    self._on_post_error(report)
                case c.Quiet():
                    self._on_quiet(report)

    def snapshot(self) -> list[RoomView]:
        """Rooms of this engine's requests that have not ended or are not quiet yet."""
        with self._box:
            now = self._clock()
            return [e.view(now) for e in self._rooms.values() if e.rid is not None]

    def open_rooms(self, peer: PeerKey) -> int:
        with self._box:
            return sum(e.peer == peer and not e.ended for e in self._rooms.values())

    def _live(self, room: int) -> Outgoing | None:
        entry = self._rooms.get(room)
        return entry if entry and entry.rid is not None and not entry.ended else None

    def _finish(self, room: int, outcome: Outcome) -> bool:
        with self._box:
            entry = self._live(room)
            return entry is not None and self._end(entry, outcome)

    def _on_want(self, peer: PeerKey, want: m.Want) -> None:
        if self._faults.take("lose-want"):
            return
        now = self._clock()
        entry = self._rooms.get(want.room)
        target = self._peers.get(peer) or self._ranks.target(0, None)
        problem = want_problem(want, entry, self._recent.get(want.room), target.pages)
        if problem:
            self._refuse(peer, want.room, want.ticket, *problem)
            return
        if entry is None:
            entry = self._rooms[want.room] = Outgoing(want.room, None, now, stage_at=now)
            early = entry
            at = now + self._settings["queue"]
            self._deadlines.arm(("want", want.room), "queue", at, lambda: self._early_fired(early))
        entry.wanted_by(peer, want, target.unit)
        entry.tally = self._ranks.tally() if want.sums else None
        self._tell(entry)
        if entry.rid is not None:
            self._box.put(self._sink.wanted, entry.room, entry.rid)
        self._pump(entry)

    def _begin(self, entry: Outgoing, stage: str, now: float) -> None:
        """The prompt has its turn: a decode that asked is told, for it waits for that by another limit."""
        waited = entry.stage == "waiting"
        entry.move(stage, now)
        if waited and entry.dst is not None:
            self._tell(entry)

    def _tell(self, entry: Outgoing, pages: int = 0) -> None:
        if entry.peer:
            self._box.put(self._link.send, entry.peer, entry.word(pages))

    def _refuse(self, peer: PeerKey, room: int, ticket: int, code: str, message: str) -> None:
        """Answer for a use of the room that no Post was ever made for."""
        self._box.put(self._link.send, peer, m.Failed(room=room, ticket=ticket, code=code, message=message))
        self._box.put(self._link.send, peer, m.Quiesced(room=room, ticket=ticket))

    def _on_taken(self, peer: PeerKey, taken: m.Taken) -> None:
        entry = self._rooms.get(taken.room)
        if entry is None or entry.ended or (entry.peer, entry.ticket) != (peer, taken.ticket):
            self.counters.late_completions += 1
        elif not entry.done_sent:
            text = "Decode took KV that was not handed over."
            self._end(entry, Outcome("failed", "kv_transfer_failed", text))
        else:
            self._end(entry, Outcome("done"), tell=False)

    def _on_cancel(self, peer: PeerKey, cancel: m.Cancel) -> None:
        kind: Literal["aborted", "failed"] = "aborted" if cancel.code == "aborted" else "failed"
        outcome = Outcome(kind, cancel.code, cancel.message)
        entry = self._rooms.get(cancel.room)
        wanted = entry is not None and entry.dst is not None
        if entry is None or (wanted and (entry.peer, entry.ticket) != (peer, cancel.ticket)):
            # Nothing of that use of the room is open here; a request that comes later is not served.
            if entry is None and self._recent.get(cancel.room) is None:
                self._recent.add(cancel.room, outcome, opened=False)
            self._box.put(self._link.send, peer, m.Quiesced(room=cancel.room, ticket=cancel.ticket))
            return
        entry.cancelled = True
        if entry.dst is None:
            entry.peer, entry.ticket = peer, cancel.ticket
        if not entry.ended and not self._legacy:
            entry.told(outcome, self._clock())
            self._end(entry, outcome, tell=False)

    def _pump(self, entry: Outgoing) -> None:
        """Post what is complete and wanted, then hand over when everything has arrived."""
        if entry.dst is None or entry.peer is None or entry.rid is None or entry.ended:
            return
        if entry.ready > len(entry.dst) or entry.tokens not in (None, entry.dst_tokens):
            text = f"Decode wants {entry.dst_tokens} tokens, not {entry.tokens} in {entry.complete} pages."
            self._end(entry, Outcome("failed", "kv_transfer_failed", text))
            return
        if entry.complete > entry.posted:
            self._post(entry, entry.peer)
        self._hand_over(entry)

    def _post(self, entry: Outgoing, peer: PeerKey) -> None:
        if entry.posted == 0:
            entry.stall = self._faults.take("stall-transfer")
        src, dst = entry.unposted()
        if len(dst) > 1 and self._faults.take("swap-pages"):
            dst = [dst[-1], *dst[1:-1], dst[0]]
        self._seq += 1
        entry.open[self._seq] = set(range(self._ranks.tp))
        entry.upto[self._seq] = entry.whole
        post = c.Post(
            room=entry.room,
            seq=self._seq,
            peer=self.edge_of(peer),
            src=src,
            dst=dst,
            sums=entry.pages[entry.posted : entry.complete] if entry.tally else [],
            first=entry.posted,
            tokens=entry.dst_tokens,
            stall=entry.stall,
            fail=self._faults.take("fail-post"),
            delay=self._faults.take_value("slow-transfer") or 0.0,
        )
        entry.posted = entry.complete
        self._box.put(self._ranks.broadcast, post)

    def edge_of(self, peer: PeerKey) -> str:
        """The name ranks know a peer by. A legacy fleet knows instances, not lives: that is its fault."""
        return peer.instance if self._legacy else str(peer)

    def _hand_over(self, entry: Outgoing) -> None:
        if entry.open or entry.done_sent or entry.tokens is None or entry.first is None or entry.peer is None:
            return
        unequal = entry.tally.unequal() if entry.tally else ""
        if unequal:
            self.counters.kv_corrupt += 1
            text = f"Ranks of prefill that hold the same heads differ in {unequal}."
            self._end(entry, Outcome("failed", "kv_corrupt", text))
            return
        entry.done_sent = True
        if not self._faults.take("lose-done"):
            self._box.put(self._link.send, entry.peer, entry.done(entry.tokens, entry.first))

    def _on_posted(self, report: c.Posted) -> None:
        entry = self._rooms.get(report.room)
        ranks = entry.open.get(report.seq) if entry else None
        if entry is None or entry.ended or ranks is None or report.rank not in ranks:
            self.counters.late_completions += 1
            return
        ranks.discard(report.rank)
        if entry.tally:
            entry.tally.add(report.rank, report.first, report.sums)
        entry.bytes += report.bytes
        self.counters.transfer_bytes += report.bytes
        if ranks or entry.peer is None:
            return
        del entry.open[report.seq]
        self.counters.transfer_seconds += report.seconds
        waiting = min(entry.open, default=None)
        arrived = entry.upto[report.seq] if waiting is None or waiting > report.seq else 0
        if arrived:
            self._tell(entry, arrived)
        self._hand_over(entry)

    def _on_post_error(self, report: c.PostError) -> None:
        entry = self._rooms.get(report.room)
        if entry is None or entry.ended:
            self.counters.late_completions += 1
            return
        text = f"Rank {report.rank} could not write to decode {entry.peer}."
        log.error("kv_transfer_error room=%s request=%s %s %s", entry.room, entry.rid, text, report.error)
        if not self._legacy:
            self._end(entry, Outcome("failed", "kv_transfer_failed", text))

    def _on_quiet(self, report: c.Quiet) -> None:
        entry = self._rooms.get(report.room)
        if entry is None or entry.outcome is None:
            self.counters.late_completions += 1
            return
        entry.quiet_ranks.add(report.rank)
        if len(entry.quiet_ranks) == self._ranks.tp:
            self._quiet(entry, entry.outcome)

    def _inflight_fired(self, entry: Outgoing) -> bool | float:
        with self._box:
            value, now = self._settings["inflight"], self._clock()
            if entry.stage != "inflight":
                return False
            if now < entry.computed_at + value:
                return entry.computed_at + value
            entry.fired("inflight", value, now - entry.computed_at, "kv_transfer_timeout")
            name = BY_NAME["inflight"].env
            text = f"KV was not handed over within {name}={value:g} s, waiting on {entry.waiting_on}."
            return self._end(entry, Outcome("failed", "kv_transfer_timeout", text))

    def _early_fired(self, entry: Outgoing) -> bool | float:
        with self._box:
            value, now = self._settings["queue"], self._clock()
            if entry.rid is not None or entry.ended:
                return False
            if now < entry.opened_at + value:
                return entry.opened_at + value
            entry.fired("queue", value, now - entry.opened_at, "queue_timeout")
            text = f"No request for the room reached prefill within {BY_NAME['queue'].env}={value:g} s."
            return self._end(entry, Outcome("failed", "queue_timeout", text))

    def _end(self, entry: Outgoing, outcome: Outcome, tell: bool = True) -> bool:
        """The only way into a terminal stage."""
        waited_on = entry.waiting_on
        if not entry.move(outcome.kind, self._clock()):
            self.counters.late_completions += 1
            return False
        entry.outcome = outcome
        self._deadlines.cancel(("inflight", entry.room))
        self._deadlines.cancel(("want", entry.room))
        if entry.rid is not None:
            self.counters.ended(entry.peer, outcome, self._clock())
            self._box.put(self._sink.ended, entry.room, entry.rid, outcome)
        if tell and waited_on != "want" and entry.peer and not self._legacy:
            failed = m.Failed(
                room=entry.room, ticket=entry.ticket, code=outcome.code, message=outcome.message
            )
            self._box.put(self._link.send, entry.peer, failed)
        if entry.open:
            self._box.put(self._ranks.broadcast, c.Quiesce(entry.room))
        else:
            self._quiet(entry, outcome)
        return True

    def _quiet(self, entry: Outgoing, outcome: Outcome) -> None:
        del self._rooms[entry.room]
        self._recent.add(entry.room, outcome, opened=entry.rid is not None)
        if entry.rid is not None:
            self._box.put(self._sink.quiet, entry.room, entry.rid)
        owed = entry.cancelled or (entry.dst is not None and not self._legacy)
        if entry.peer and owed and outcome.kind != "done":
            self._box.put(self._link.send, entry.peer, m.Quiesced(room=entry.room, ticket=entry.ticket))
