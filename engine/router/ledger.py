"""Every request the router has taken, in exactly one stage, until it ends: pure data, no clock, no I/O.

Conservation: requests_total == live + done + aborted + the sum of failed. Ends are sticky.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Literal

Stage = Literal["admitted", "held", "dispatched", "streaming"]
End = Literal["done", "failed", "aborted"]
LegStatus = Literal["pending", "done", "failed", "cancelled"]
Side = Literal["prefill", "decode"]
_RECENT = 256


@dataclass
class Leg:
    """One engine's part in a request. `mark` is the last progress that engine showed for it."""

    engine: str
    since: float
    status: LegStatus = "pending"
    mark: object = None


@dataclass
class Entry:
    """One request. Times are seconds of the caller's monotonic clock; `attempts` counts its dispatches."""

    id: str
    stream: bool
    model: str
    admitted_at: float
    stage: Stage = "admitted"
    stage_at: float = 0.0
    active_at: float = 0.0  # when either leg last showed a sign of life
    room: int | None = None
    tokens_out: int = 0
    attempts: int = 0
    legs: dict[Side, Leg] = field(default_factory=dict)
    ended: End | None = None


@dataclass(frozen=True)
class Ended:
    id: str
    room: int | None
    ended: End
    code: str | None
    seconds: float
    ended_at: float  # Unix seconds


class Ledger:
    """Changes to an ended entry are dropped, so late events of a leg need no care."""

    def __init__(self) -> None:
        self.live: dict[str, Entry] = {}
        self.recent: deque[Ended] = deque(maxlen=_RECENT)
        self.total = 0
        self.done = 0
        self.aborted = 0
        self.failed: Counter[str] = Counter()
        self.retries = 0
        self.resumed = 0
        self.held_total = 0

    def admit(self, id: str, stream: bool, model: str, now: float) -> Entry:
        """A new request; ValueError when the id is live already."""
        if id in self.live:
            raise ValueError(f"request {id} is live already")
        entry = Entry(id, stream, model, now, stage_at=now, active_at=now)
        self.live[id] = entry
        self.total += 1
        return entry

    def _move(self, entry: Entry, stage: Stage, now: float) -> None:
        if entry.stage != stage:
            entry.stage, entry.stage_at = stage, now
        entry.active_at = now

    def hold(self, entry: Entry, now: float) -> None:
        """It waits for admissions to open."""
        if entry.ended is None and entry.stage != "held":
            self.held_total += 1
            self._move(entry, "held", now)

    def release(self, entry: Entry, now: float) -> None:
        """It waits no more for admissions."""
        if entry.ended is None:
            self._move(entry, "admitted", now)

    def dispatch(self, entry: Entry, room: int, prefill: str, decode: str, now: float) -> None:
        """Both legs go out; a retry if not for the first time, a resumed stream if the client has a part."""
        if entry.ended is not None:
            return
        self.retries += entry.attempts > 0
        self.resumed += entry.attempts > 0 and entry.tokens_out > 0
        entry.attempts += 1
        entry.room = room
        entry.legs = {"prefill": Leg(prefill, now), "decode": Leg(decode, now)}
        self._move(entry, "dispatched", now)

    def again(self, entry: Entry, now: float) -> None:
        """Its legs are over and it is not: it waits for another pair, and no engine has it."""
        if entry.ended is None:
            entry.room = None
            entry.legs = {}
            self._move(entry, "admitted", now)

    def streaming(self, entry: Entry, now: float) -> None:
        """The decode leg answered."""
        if entry.ended is None:
            self._move(entry, "streaming", now)

    def tokens(self, entry: Entry, count: int, now: float) -> None:
        """Answer bytes passed, with `count` token events in them."""
        if entry.ended is None:
            entry.tokens_out += count
            entry.active_at = now

    def leg(self, entry: Entry, side: Side, status: LegStatus, now: float) -> None:
        """A leg ended; the first end stands."""
        leg = entry.legs.get(side)
        if entry.ended is None and leg is not None and leg.status == "pending":
            leg.status, leg.since = status, now
            entry.active_at = now

    def progress(self, id: str, engine: str, mark: object, waits: bool, now: float) -> None:
        """An engine reported this request; a report unlike its last one is a sign of life.

        So is that it `waits` for its turn, which the engine has a deadline of its own for.
        """
        entry = self.live.get(id)
        for leg in entry.legs.values() if entry is not None else ():
            if entry is not None and leg.engine == engine and (waits or leg.mark != mark):
                leg.mark = mark
                entry.active_at = now

    def end(self, entry: Entry, how: End, code: str | None, now: float, wall: float) -> bool:
        """The request is over; False when it was over already, which changes nothing."""
        if entry.ended is not None:
            return False
        entry.ended = how
        del self.live[entry.id]
        if how == "done":
            self.done += 1
        elif how == "aborted":
            self.aborted += 1
        else:
            self.failed[code or "unknown"] += 1
        self.recent.append(Ended(entry.id, entry.room, how, code, now - entry.admitted_at, wall))
        return True

    @property
    def held(self) -> int:
        return sum(e.stage == "held" for e in self.live.values())

    def counters(self) -> dict[str, Any]:
        return {
            "requests_total": self.total,
            "requests_done": self.done,
            "requests_aborted": self.aborted,
            "requests_failed": dict(self.failed),
            "retries": self.retries,
            "resumed": self.resumed,
            "held_total": self.held_total,
        }
