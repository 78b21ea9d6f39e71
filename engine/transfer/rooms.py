"""What the two room state machines keep: a room of either side, the stages' order, ended rooms, counters."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field

from engine.core.types import TERMINAL, FirstToken
from engine.transfer import messages as m
from engine.transfer.deadlines import log_fired
from engine.transfer.handshake import PeerKey
from engine.transfer.integrity import Tally
from engine.transfer.layout import PAGE, Unit, units_of
from engine.transfer.ports import Outcome, RoomView

log = logging.getLogger("pdctl.engine.transfer")

# From each stage of a room to where it may go next. Terminal stages have no way out; prefill begins a room
# again that it gave up before decode asked for it.
NEXT: dict[str, frozenset[str]] = {
    "waiting": frozenset({"prefilling", "inflight", "preallocated"}) | TERMINAL,
    "prefilling": frozenset({"inflight", "waiting"}) | TERMINAL,
    "inflight": frozenset({"waiting"}) | TERMINAL,
    "preallocated": frozenset({"transferring"}) | TERMINAL,
    "transferring": TERMINAL,
    "done": frozenset(),
    "failed": frozenset(),
    "aborted": frozenset(),
}


@dataclass(eq=False)
class Staged:
    """What either side knows of a room. `rid` is None for one that only the peer has spoken of.

    `hint` names the peer (an address) until its identity is known.
    """

    room: int
    rid: str | None
    opened_at: float
    hint: str | None = None
    pages: list[int] = field(default_factory=list)
    stage: str = "waiting"
    stage_at: float = 0.0
    peer: PeerKey | None = None
    ticket: int = 0
    bytes: int = 0
    outcome: Outcome | None = None

    @property
    def ended(self) -> bool:
        return self.stage in TERMINAL

    @property
    def waiting_on(self) -> str | None:
        """What has to come next; None once ended."""
        return None

    def view(self, now: float) -> RoomView:
        return RoomView(
            room=self.room,
            rid=self.rid or "",
            stage=self.stage,
            waiting_on=self.waiting_on,
            peer=self.peer.instance if self.peer else self.hint,
            peer_incarnation=self.peer.incarnation if self.peer else None,
            pages=len(self.pages),
            bytes=self.bytes,
            age=now - self.opened_at,
            stage_age=now - self.stage_at,
        )

    def fired(self, name: str, value: float, age: float, code: str) -> None:
        """The log line of the deadline that ends this room."""
        peer, pages = self.peer or self.hint, len(self.pages)
        log_fired(code, name, value, age, peer, room=self.room, request=self.rid, pages=pages)

    def told(self, outcome: Outcome, now: float) -> None:
        """The log line of a room that fails because the peer said so: each side's log names what it held."""
        if outcome.kind == "failed":
            text = "ended_by_peer room=%s request=%s age=%.1fs peer=%s pages=%s waiting_on=%s code=%s: %s"
            who = (self.room, self.rid or "-", now - self.stage_at, self.peer or self.hint)
            log.warning(text, *who, len(self.pages), self.waiting_on, outcome.code, outcome.message)

    def move(self, stage: str, now: float) -> bool:
        """Go to a stage if it may follow this one; False changes nothing."""
        if stage not in NEXT[self.stage]:
            return False
        self.stage, self.stage_at = stage, now
        return True


@dataclass(eq=False)
class Outgoing(Staged):
    """A room on prefill.

    `open[seq]` are the ranks whose Post seq is not complete; `upto[seq]` the pages of decode that it makes
    whole. `pages`, `complete` and `posted` count prefill's pages, `dst` the units of decode's.
    """

    complete: int = 0
    tokens: int | None = None
    first: FirstToken | None = None
    computed_at: float = 0.0
    dst: list[int] | None = None
    dst_tokens: int = 0
    unit: Unit = PAGE
    posted: int = 0
    stall: bool = False
    open: dict[int, set[int]] = field(default_factory=dict)
    upto: dict[int, int] = field(default_factory=dict)
    tally: Tally | None = None
    done_sent: bool = False
    cancelled: bool = False
    quiet_ranks: set[int] = field(default_factory=set)

    @property
    def waiting_on(self) -> str | None:
        if self.ended:
            return None
        if self.dst is None:
            return "want"
        return "taken" if self.done_sent else "transfer"

    @property
    def ready(self) -> int:
        """Units that are computed: all of a complete page, but of the last one what the prompt fills.

        Pages of equal size may be more than the prompt's: those of its state, which decode wants too.
        """
        units = self.complete * self.unit.src
        if self.tokens is None:
            return units
        filled = -(-self.tokens // self.unit.tokens)
        more = len(self.dst or []) if self.unit.src == self.unit.dst else 0
        return min(units, max(filled, more))

    @property
    def whole(self) -> int:
        """Pages of decode that have nothing to come once what is ready is written."""
        return self.ready // self.unit.dst if self.tokens is None else -(-self.ready // self.unit.dst)

    def wanted_by(self, peer: PeerKey, want: m.Want, unit: Unit) -> None:
        self.peer, self.ticket, self.unit = peer, want.ticket, unit
        self.dst, self.dst_tokens = units_of(want.pages, unit.dst), want.tokens

    def unposted(self) -> tuple[list[int], list[int]]:
        """Units of prefill's and of decode's pages that are ready to be written now."""
        dst = (self.dst or [])[self.posted * self.unit.src : self.ready]
        return units_of(self.pages[self.posted : self.complete], self.unit.src)[: len(dst)], dst

    def word(self, pages: int) -> m.Heard | m.Chunk:
        """How far it is: waiting for its turn, or computed and written up to `pages` of decode's."""
        if self.stage == "waiting":
            return m.Heard(room=self.room, ticket=self.ticket)
        return m.Chunk(room=self.room, ticket=self.ticket, pages_done=pages, bytes=self.bytes)

    def done(self, tokens: int, first: FirstToken) -> m.Done:
        """What the room is handed over with."""
        sums = self.tally.total() if self.tally else None
        return m.Done(room=self.room, ticket=self.ticket, tokens=tokens, first=first, sums=sums)


def want_problem(
    want: m.Want, entry: Outgoing | None, ended: Outcome | None, pages: int
) -> tuple[str, str] | None:
    """Why prefill cannot serve a Want, as code and sentence; `pages` is what each rank of the peer has.

    Of a room that ended before decode spoke up decode hears how: an abort there is an abort here too.
    """
    over = ended if entry is None else entry.outcome
    if over is not None:
        code = "kv_transfer_failed" if over.kind == "done" else over.code
        return code, f"The room has ended on prefill: {over.message or over.kind}"
    if entry is not None and entry.dst is not None:
        return "kv_transfer_failed", f"The room is already wanted by {entry.peer}."
    if len(set(want.pages)) != len(want.pages) or any(not 0 <= p < pages - 1 for p in want.pages):
        return "kv_transfer_failed", f"The pages of the Want are not distinct numbers in 0..{pages - 2}."
    return None


@dataclass(eq=False)
class Incoming(Staged):
    """A room on decode. `turn`: its prompt waits for its turn on prefill; `word_at` is when decode asked, or
    prefill last said that it goes on. `sums`: its Want asked for checksums; `done` and `tally` are set while
    it looks at what has arrived, `wrong` is what a rank finds wrong with it."""

    tokens: int = 0
    granted: bool = False
    granted_at: float = 0.0
    wanted: bool = False
    turn: bool = False
    word_at: float = 0.0
    pages_done: int = 0
    sums: bool = False
    done: m.Done | None = None
    tally: Tally | None = None
    checked_ranks: set[int] = field(default_factory=set)
    wrong: str = ""

    @property
    def waiting_on(self) -> str | None:
        if self.ended:
            return None
        if not self.granted:
            return "pages"
        if self.done is not None:
            return "checksum"
        if self.turn:
            return "turn"
        return "done" if self.pages_done else "transfer"


@dataclass
class PeerStats:
    """What happened with one peer life."""

    ok: int = 0
    failed: int = 0
    last_ok_at: float | None = None


@dataclass
class Counters:
    """Totals since start."""

    transfers_ok: int = 0
    transfers_failed: int = 0
    transfer_bytes: int = 0
    transfer_seconds: float = 0.0
    late_completions: int = 0
    kv_verified: int = 0
    kv_corrupt: int = 0
    by_peer: dict[PeerKey, PeerStats] = field(default_factory=dict)

    def ended(self, peer: PeerKey | None, outcome: Outcome, now: float) -> None:
        if outcome.kind == "done":
            self.transfers_ok += 1
        elif outcome.kind == "failed":
            self.transfers_failed += 1
        if peer is None or outcome.kind == "aborted":
            return
        stats = self.by_peer.setdefault(peer, PeerStats())
        if outcome.kind == "done":
            stats.ok, stats.last_ok_at = stats.ok + 1, now
        else:
            stats.failed += 1


class Recent:
    """The last few thousand rooms that ended and went quiet: a late word about one gets an answer."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._rooms: OrderedDict[int, tuple[Outcome, bool]] = OrderedDict()

    def add(self, room: int, outcome: Outcome, opened: bool) -> None:
        """`opened` is false for a room that ended before this engine's own request came."""
        self._rooms[room] = (outcome, opened)
        self._rooms.move_to_end(room)
        if len(self._rooms) > self._limit:
            self._rooms.popitem(last=False)

    def get(self, room: int) -> Outcome | None:
        entry = self._rooms.get(room)
        return entry[0] if entry else None

    def doomed(self, room: int) -> Outcome | None:
        """How a room ended before it was opened; forgets it. A room that had its turn may be used again."""
        entry = self._rooms.pop(room, None)
        return entry[0] if entry and not entry[1] else None
