"""What the room state machines need from outside, and what they tell: small protocols and plain values."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Literal, NamedTuple, ParamSpec, Protocol

from engine.core.types import FirstToken
from engine.transfer.commands import Command
from engine.transfer.handshake import PeerKey
from engine.transfer.integrity import Tally
from engine.transfer.layout import Unit, unit_of
from engine.transfer.messages import RoomMessage

P = ParamSpec("P")


@dataclass(frozen=True)
class Outcome:
    """How a room ended. `code` is a key of core.errors.FAILURE_STATUS, empty when done."""

    kind: Literal["done", "failed", "aborted"]
    code: str = ""
    message: str = ""


@dataclass(frozen=True)
class RoomView:
    """One room for /v1/state; ages in seconds."""

    room: int
    rid: str
    stage: str
    waiting_on: str | None
    peer: str | None
    peer_incarnation: str | None
    pages: int
    bytes: int
    age: float
    stage_age: float


class Sink(Protocol):
    """The engine's side. Called from any thread, in order per room, with no lock of this package held."""

    def ended(self, room: int, rid: str, outcome: Outcome) -> None:
        """The room ended, once. Its pages stay untouchable until `quiet`."""

    def quiet(self, room: int, rid: str) -> None:
        """No remote write can reach the room's pages any more, once, after `ended`."""

    def wanted(self, room: int, rid: str) -> None:
        """Prefill: decode has asked for the room of an accepted request, once."""

    def ready(self, room: int, rid: str, first: FirstToken) -> None:
        """Decode: the room's KV is complete; called after `ended` (done) and `quiet`."""


class Target(NamedTuple):
    """Where prefill writes: each rank of the peer has `pages` pages, the last one scratch, made of `unit`."""

    pages: int
    unit: Unit


@dataclass(frozen=True)
class Ranks:
    """All `tp` ranks of this engine. `broadcast` keeps one order for every rank and must not block.

    `heads[r]` is the KV head range of rank r; a page holds `page_size` tokens of `layers` layers;
    with `indexed` it may have index-K.
    """

    tp: int
    broadcast: Callable[[Command], None]
    heads: tuple[tuple[int, int], ...] = ()
    layers: int = 1
    page_size: int = 1
    indexed: bool = False

    def target(self, pages: int, page_size: int | None) -> Target:
        """A peer's pool as this engine writes it; `page_size` None is as here. ValueError when no unit
        makes up both page sizes."""
        unit = unit_of(self.page_size, page_size or self.page_size)
        if unit is None:
            raise ValueError(f"pages of {self.page_size} and of {page_size} tokens have no common unit")
        return Target(pages, unit)

    def tally(self) -> Tally:
        """For the checksums of one room."""
        return Tally(self.heads or tuple((r, r + 1) for r in range(self.tp)), self.layers, self.page_size)


class LinkPort(Protocol):
    def send(self, peer: PeerKey, message: RoomMessage) -> None:
        """Queue for the peer; dropped when it is not linked."""

    def demand(self, address: str) -> None:
        """Dial this prefill unless it is linked; at once if a redial is waiting."""


class DeadlinePort(Protocol):
    def arm(self, key: Hashable, name: str, at: float, callback: Callable[[], bool | float]) -> None: ...
    def expired(self, code: str, name: str, value: float, age: float, peer: object) -> None: ...
    def rearm(self, key: Hashable, at: float) -> bool: ...
    def cancel(self, key: Hashable) -> None: ...


class Outbox:
    """A lock whose holder leaves calls to be made after it is released, in the order they were left.

    State machines decide under the lock and speak outside it, so a callback may call back in; and since
    calls leave in the order of the decisions, a Post can never overtake the Quiesce that followed it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._speaking = threading.Lock()
        self._calls: deque[Callable[[], object]] = deque()

    def put(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Leave a call; only while holding the lock."""
        self._calls.append(partial(call, *args, **kwargs))

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        while self._calls and self._speaking.acquire(blocking=False):
            try:
                while self._calls:
                    self._calls.popleft()()
            finally:
                self._speaking.release()
