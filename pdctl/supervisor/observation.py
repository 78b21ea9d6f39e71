"""One look at a fleet: what every engine, the router and every host said, as plain values.

What the judge judges, the history keeps and the pages draw. It is made of the adapters' normalised pictures
(pdctl/adapters/picture.py), whose value classes it uses; what a party did not say is None, or empty.
Ages and durations are seconds. `at` is wall time (Unix seconds), for people and files; `monotonic` is the
same moment on the observer's monotonic clock, and the only one that durations between looks are made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pdctl.adapters.picture import (
    Counters,
    Engine,
    Leg,
    Pages,
    Peer,
    Progress,
    Queue,
    Reach,
    Router,
    RouterEngine,
    RouterRequest,
    Sample,
)
from pdctl.facts.missing import Missing, known
from pdctl.units.spec import UnitStatus

# Queues in which a request waits for something; what is in `running` works, if tokens move.
WAITING = frozenset(
    (
        *("waiting", "prefilling", "inflight", "preallocated", "transferring", "ready"),
        *("bootstrap", "prealloc", "transfer", "waiting for KV", "retracted"),  # of other kinds
    )
)
# Requests of one router and of one engine that a look lists, the oldest; depths and sizes count all of them.
LISTED = 200


@dataclass(frozen=True)
class EngineLook:
    """One engine in one look.

    `reach` and `detail` say how the probe ended and, in words, why there is no answer; everything below them
    is of an answer and empty without one. `ready` is the engine's own word with its reasons in `not_ready`.
    `incarnation` is "" where its kind shows none; `started_at` tells lives apart then. `release` and `inputs`
    (a digest of profile, flags and variables) are of the life that its host's unit runs, "" until the host
    has been asked. `oldest_age` of a queue is None where its kind shows no ages. `legs` are its oldest
    requests, at most LISTED; `waits` are the ids of all that wait. `failed` counts ended requests by code,
    `fired` deadlines by name: both since its start.
    """

    name: str
    cell: str
    role: str
    host: str
    kind: str = "bundled"
    reach: Reach = Reach.OK
    detail: str = ""
    seconds: float = 0.0
    status: str = ""
    ready: bool = False
    not_ready: tuple[str, ...] = ()
    incarnation: str = ""
    started_at: float | None = None
    pid: int | None = None
    release: str = ""
    inputs: str = ""
    snapshot_age: float | None = None
    progress: Progress | None = None
    queues: Mapping[str, Queue] = field(default_factory=dict)
    pages: Pages | None = None
    peers: tuple[Peer, ...] = ()
    legs: tuple[Leg, ...] = ()
    waits: frozenset[str] = frozenset()
    counters: Counters | None = None

    @property
    def answered(self) -> bool:
        return self.reach is Reach.OK

    @property
    def life(self) -> tuple[str, float | None]:
        """Changes with every start of the process, and with nothing else."""
        return self.incarnation, None if self.incarnation else self.started_at

    @property
    def waiting(self) -> int:
        """Legs of requests in queues where they wait."""
        return sum(q.depth for name, q in self.queues.items() if name in WAITING)

    @property
    def working(self) -> int:
        """Requests that it counts in any queue."""
        return sum(q.depth for q in self.queues.values())

    @property
    def oldest(self) -> float | None:
        """The longest wait of a request in one queue; None when none waits or its kind shows no ages."""
        ages = [q.oldest_age for n, q in self.queues.items() if n in WAITING and q.oldest_age is not None]
        return max(ages, default=None)

    @property
    def failed(self) -> Mapping[str, int]:
        return self.counters.requests_failed if self.counters else {}

    @property
    def fired(self) -> Mapping[str, int]:
        return self.counters.deadlines_fired if self.counters else {}

    @property
    def tokens(self) -> int | None:
        """Tokens prefilled and generated since its start; None where its kind does not say."""
        p = self.progress
        return None if p is None else p.tokens_generated + p.tokens_prefilled


def requests_waiting(engines: Iterable[EngineLook]) -> int:
    """Requests that wait on these: one that waits on both its legs is one. Legs that an engine does not list
    count as requests of their own."""
    found: set[str] = set()
    unlisted = 0
    for engine in engines:
        found |= engine.waits
        unlisted += max(0, engine.waiting - len(engine.waits))
    return len(found) + unlisted


@dataclass(frozen=True)
class RouterLook:
    """The router in one look. `size` is how many requests its ledger counts, `requests` the oldest of them.

    `oldest` is the age of the oldest; both None where its kind lists no requests. `engines` are the engines
    as it sees them: who is ready, cordoned, and when each last answered *it*.
    """

    name: str
    host: str
    kind: str = "bundled"
    reach: Reach = Reach.OK
    detail: str = ""
    seconds: float = 0.0
    incarnation: str = ""
    started_at: float | None = None
    admission: str = ""
    held: int = 0
    hold_age: float | None = None
    size: int | None = None
    oldest: float | None = None
    requests: tuple[RouterRequest, ...] = ()
    engines: tuple[RouterEngine, ...] = ()
    failed: Mapping[str, int] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        return self.reach is Reach.OK


@dataclass(frozen=True)
class HostLook:
    """One host, asked over its transport. It is asked less often than engines: `monotonic` and `at` are of
    its own last answer or failure, so that an old look can be told from a new one.

    `reachable` with `detail`: the reason when it is not. `units` are its units' states by name and `releases`
    what each runs; both are of the last time that the host answered.
    """

    name: str
    reachable: bool
    at: float
    monotonic: float
    seconds: float = 0.0
    detail: str = ""
    local: bool = False
    units: Mapping[str, UnitStatus] = field(default_factory=dict)
    releases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """One look. `number` counts the observer's looks from 1, `seconds` is what it took.

    `router` is None when the fleet file names none. `hosts` holds a host once it has been asked.
    """

    fleet: str
    number: int
    at: float
    monotonic: float
    engines: tuple[EngineLook, ...]
    router: RouterLook | None = None
    hosts: tuple[HostLook, ...] = ()
    seconds: float = 0.0

    def engine(self, name: str) -> EngineLook | None:
        return next((e for e in self.engines if e.name == name), None)

    def host(self, name: str) -> HostLook | None:
        return next((h for h in self.hosts if h.name == name), None)

    def cells(self) -> dict[str, tuple[EngineLook, ...]]:
        """Cell -> its engines, in the order of the fleet file."""
        found: dict[str, list[EngineLook]] = {}
        for engine in self.engines:
            found.setdefault(engine.cell, []).append(engine)
        return {cell: tuple(engines) for cell, engines in found.items()}

    @property
    def nobody_answers(self) -> bool:
        """Whether no party at all answered: what an observer sees that is itself cut off."""
        parties = (*self.engines, *((self.router,) if self.router else ()))
        hosts = any(h.reachable and not h.local for h in self.hosts)
        return bool(parties) and not hosts and all(_silent(p.reach) for p in parties)


def _silent(reach: Reach) -> bool:
    """No packet came back: a refused port and a wrong answer come from a host that is there."""
    return reach in (Reach.UNREACHABLE, Reach.TIMED_OUT)


def engine_look(of: EngineLook, sample: Sample[Engine]) -> EngineLook:
    """`of` says which engine it is, and what its host's unit runs; the sample is of one probe."""
    picture = sample.picture
    if isinstance(picture, Missing):
        reach = Reach.BAD_ANSWER if sample.reach is Reach.OK else sample.reach
        return replace(of, reach=reach, detail=sample.detail or picture.reason, seconds=sample.seconds)
    legs = picture.legs if known(picture.legs) else ()
    return replace(
        of,
        reach=sample.reach,
        detail=sample.detail,
        seconds=sample.seconds,
        status=picture.status,
        ready=picture.ready,
        not_ready=picture.not_ready,
        incarnation=picture.incarnation if known(picture.incarnation) else "",
        started_at=picture.started_at if known(picture.started_at) else None,
        pid=picture.pid if known(picture.pid) else None,
        snapshot_age=picture.snapshot_age if known(picture.snapshot_age) else None,
        progress=picture.progress if known(picture.progress) else None,
        queues=picture.queues,
        pages=picture.pages if known(picture.pages) else None,
        peers=picture.peers if known(picture.peers) else (),
        legs=_oldest_legs(legs),
        waits=frozenset(leg.id for leg in legs if leg.stage in WAITING),
        counters=picture.counters if known(picture.counters) else None,
    )


def _oldest_legs(legs: tuple[Leg, ...]) -> tuple[Leg, ...]:
    return legs if len(legs) <= LISTED else tuple(sorted(legs, key=lambda leg: -leg.age)[:LISTED])


def router_look(of: RouterLook, sample: Sample[Router]) -> RouterLook:
    """`of` says which router it is."""
    picture = sample.picture
    if isinstance(picture, Missing):
        reach = Reach.BAD_ANSWER if sample.reach is Reach.OK else sample.reach
        return replace(of, reach=reach, detail=sample.detail or picture.reason, seconds=sample.seconds)
    requests = sorted(picture.requests, key=lambda r: -r.age) if known(picture.requests) else None
    return replace(
        of,
        reach=sample.reach,
        detail=sample.detail,
        seconds=sample.seconds,
        incarnation=picture.incarnation if known(picture.incarnation) else "",
        started_at=picture.started_at if known(picture.started_at) else None,
        admission=picture.admission,
        held=picture.held,
        hold_age=picture.hold_age,
        size=None if requests is None else len(requests),
        oldest=requests[0].age if requests else None,
        requests=tuple((requests or [])[:LISTED]),
        engines=picture.engines,
        failed=picture.requests_failed,
    )
