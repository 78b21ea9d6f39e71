"""One normalised picture of a fleet's engines and router, whatever kind of server answered.

A field that a kind of server does not show is Missing(reason). Ages and durations are seconds, times
are Unix seconds. Every adapter fills these classes; every rule reads nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from pdctl.facts.missing import Missing

T = TypeVar("T")


class Reach(StrEnum):
    """How an HTTP probe ended; refused, timed out and unreachable have different causes."""

    OK = "ok"
    REFUSED = "refused"  # nothing listens on the port
    TIMED_OUT = "timed out"  # the port is open and nothing answers
    UNREACHABLE = "unreachable"  # no route, no name, or the connect itself timed out
    BAD_ANSWER = "bad answer"  # an answer that is not what the contract says
    NOT_ASKED = "not asked"  # nobody says whether it answers


@dataclass(frozen=True)
class Timeout:
    """`source` is default, env or admin; `live` says whether it can change without a restart."""

    name: str
    value: float
    env: str
    source: str
    live: bool


@dataclass(frozen=True)
class Progress:
    """Counters that move only when work is done."""

    steps: int
    last_step_age: float | None
    stepping: float | None
    loop_age: float
    tokens_generated: int
    tokens_prefilled: int


@dataclass(frozen=True)
class Queue:
    depth: int
    oldest_age: float | None


@dataclass(frozen=True)
class Leg:
    """One request on one engine.

    `waiting_on`: want, transfer, taken, pages, slot, decode, turn, done, checksum or None.
    """

    id: str
    room: int | None
    stage: str
    age: float
    stage_age: float
    prompt_tokens: int
    output_tokens: int
    pages: int
    peer: str | None
    peer_incarnation: str | None
    waiting_on: str | None
    bytes: int


@dataclass(frozen=True)
class Peer:
    """The other end of a link, as this engine sees it; an address that never linked has no instance."""

    instance: str | None
    incarnation: str | None
    address: str
    linked: bool
    since_age: float | None
    last_heard_age: float | None
    last_transfer_age: float | None
    transfers_ok: int
    transfers_failed: int
    rooms_open: int
    stale: bool
    error: str | None


@dataclass(frozen=True)
class Pages:
    """`quarantined_age` is the age of the oldest quarantined page where the engine says so."""

    total: int
    free: int
    held: int
    quarantined: int
    page_size: int
    quarantined_age: float | None = None


@dataclass(frozen=True)
class Counters:
    deadlines_fired: dict[str, int]
    requests_failed: dict[str, int]
    transfers_ok: int
    transfers_failed: int
    transfer_bytes: int
    transfer_seconds: float


@dataclass(frozen=True)
class Armed:
    """A fault point. `count` 0 means until disarmed; `hits` is how often it acted."""

    name: str
    count: int
    value: float
    hits: int


@dataclass(frozen=True)
class Dwell:
    """Time in the inflight queue: the last transfers as (end, seconds, outcome)."""

    total: int
    recent: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Rank:
    rank: int
    pid: int
    heartbeat_age: float | None


@dataclass(frozen=True)
class Engine:
    """One engine at one moment. `status`: starting, ready, draining, drained or stopping."""

    kind: str
    instance: str
    role: str
    cell: str
    incarnation: str | Missing
    pid: int | Missing
    started_at: float | Missing
    now: float
    address: str
    bootstrap: str | None
    ready: bool
    not_ready: tuple[str, ...]
    status: str
    snapshot_age: float | Missing
    progress: Progress | Missing
    queues: dict[str, Queue]
    legs: tuple[Leg, ...] | Missing
    peers: tuple[Peer, ...] | Missing
    pages: Pages | Missing
    timeouts: dict[str, Timeout]
    counters: Counters | Missing
    dwell: Dwell | Missing
    armed: tuple[Armed, ...]
    drill: bool
    legacy_bootstrap: bool
    fingerprint: dict[str, str]
    versions: dict[str, str]
    environ: dict[str, str]
    ranks: tuple[Rank, ...]


@dataclass(frozen=True)
class RouterEngine:
    """An engine as the router sees it."""

    instance: str
    role: str
    cell: str
    url: str
    ready: bool
    cordoned: bool
    last_ok_age: float | None
    error: str | None
    incarnation: str | None
    active: int


@dataclass(frozen=True)
class RouterLeg:
    """`status`: pending, done, failed or cancelled."""

    engine: str
    status: str
    age: float


@dataclass(frozen=True)
class RouterRequest:
    """One entry of the router's ledger. `stage`: admitted, held, dispatched or streaming."""

    id: str
    room: int | None
    stage: str
    age: float
    stage_age: float
    tokens_out: int
    prefill: RouterLeg | None
    decode: RouterLeg | None


@dataclass(frozen=True)
class Ended:
    """A request that is over. `how`: done, failed or aborted; `at` Unix seconds, `seconds` what it took."""

    id: str
    room: int | None
    how: str
    code: str
    seconds: float
    at: float


@dataclass(frozen=True)
class Router:
    """`admission` is open or held; `hold_age` counts from the hold, `hold_limit` is the longest that a
    request is held now; `ended` are the newest that are over."""

    kind: str
    instance: str
    incarnation: str | Missing
    pid: int | Missing
    started_at: float | Missing
    now: float
    address: str
    admission: str
    held: int
    hold_age: float | None
    engines: tuple[RouterEngine, ...]
    timeouts: dict[str, Timeout]
    requests_failed: dict[str, int]
    environ: dict[str, str]
    requests: tuple[RouterRequest, ...] | Missing
    ended: tuple[Ended, ...] = ()
    hold_limit: float | None = None


@dataclass(frozen=True)
class Sample(Generic[T]):
    """One probe: how it ended, and the picture where there is one. `seconds` is what it took."""

    reach: Reach
    picture: T | Missing
    detail: str = ""
    seconds: float = 0.0
    documents: dict[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Pair(Generic[T]):
    """The same subject twice, `gap` seconds apart, so that progress can be judged."""

    first: Sample[T]
    second: Sample[T]
    gap: float

    @property
    def latest(self) -> T | Missing:
        """The newest picture: the second sample, else the first, else why there is none."""
        second = self.second.picture
        return self.first.picture if isinstance(second, Missing) else second

    @property
    def both(self) -> tuple[T, T] | Missing:
        first, second = self.first.picture, self.second.picture
        if isinstance(first, Missing):
            return first
        if isinstance(second, Missing):
            return second
        return first, second
