"""What the two room state machines share: the stages' order, a memory of ended rooms, counters."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from engine.core.types import TERMINAL
from engine.transfer.handshake import PeerKey
from engine.transfer.ports import Outcome

# From each stage of a room to where it may go next. Terminal stages have no way out.
NEXT: dict[str, frozenset[str]] = {
    "waiting": frozenset({"prefilling", "inflight", "preallocated"}) | TERMINAL,
    "prefilling": frozenset({"inflight"}) | TERMINAL,
    "inflight": TERMINAL,
    "preallocated": frozenset({"transferring"}) | TERMINAL,
    "transferring": TERMINAL,
    "done": frozenset(),
    "failed": frozenset(),
    "aborted": frozenset(),
}


@dataclass(eq=False)
class Staged:
    """A thing with a stage. `rid` is None for a room only the peer has spoken of."""

    room: int
    rid: str | None
    opened_at: float
    stage: str = "waiting"
    stage_at: float = 0.0
    peer: PeerKey | None = None
    ticket: int = 0
    bytes: int = 0
    outcome: Outcome | None = None

    @property
    def ended(self) -> bool:
        return self.stage in TERMINAL

    def move(self, stage: str, now: float) -> bool:
        """Go to a stage if it may follow this one; False changes nothing."""
        if stage not in NEXT[self.stage]:
            return False
        self.stage, self.stage_at = stage, now
        return True


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
