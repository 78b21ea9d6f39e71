"""Everything the rules may know, gathered before the first of them runs; plain frozen values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from pdctl.adapters.picture import Engine, Leg, Pair, Peer, Reach, Router, RouterRequest, Timeout
from pdctl.adapters.traces import Event, HostTraces, Traces
from pdctl.facts.clock import Clock
from pdctl.facts.machine import Room
from pdctl.facts.missing import Missing, known
from pdctl.facts.ports import PortState
from pdctl.facts.process import Process, pids_of
from pdctl.facts.reach import Reached
from pdctl.facts.unit import Unit

NO_TRACES, NO_HOST_TRACES = Traces(), HostTraces()
# A frozen or wedged engine is told from a busy one by these (seconds).
FRESH = 5.0  # the leader publishes every 0.25 s
BEAT = 5.0  # a rank reports every second
STEP = 30.0  # no healthy forward step takes longer
PUTS_BACK = "pdctl resume"


@dataclass(frozen=True)
class Member:
    """A unit as the fleet file declares it. `expected` is the environment its profile gives it.

    `places` is variable -> "FILE:LINE" that gives it that value; "" -> where the unit itself is declared.
    """

    name: str
    role: str
    cell: str
    host: str
    url: str
    bootstrap: str | None
    expected: dict[str, str] | Missing
    unit: Unit | Missing
    process: Process | Missing
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def pids(self) -> frozenset[int]:
        """Of its processes, as far as they are known."""
        return pids_of(self.unit, self.process)


@dataclass(frozen=True)
class EngineView:
    """One engine: what was declared, what the host says, what it answered (twice), what it left behind."""

    member: Member
    pair: Pair[Engine]
    traces: Traces = NO_TRACES

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def role(self) -> str:
        return self.member.role

    @property
    def reach(self) -> Reach:
        return self.pair.second.reach

    @property
    def state(self) -> Engine | Missing:
        """The newest state of this very life, Missing when it does not answer now."""
        return self.pair.second.picture

    @property
    def fresh(self) -> bool:
        """It answers, and what it answers was published a moment ago."""
        state = self.state
        return known(state) and (not known(state.snapshot_age) or state.snapshot_age <= FRESH)

    @property
    def legs(self) -> tuple[Leg, ...]:
        state = self.state
        return state.legs if known(state) and known(state.legs) else ()

    @property
    def peers(self) -> tuple[Peer, ...]:
        state = self.state
        return state.peers if known(state) and known(state.peers) else ()

    @property
    def shows_peers(self) -> bool:
        """Whether it says whom it is linked to; engines of other kinds do not."""
        state = self.state
        return known(state) and known(state.peers)

    @property
    def shows_requests(self) -> bool:
        """Whether it lists its requests; engines of other kinds do not."""
        state = self.state
        return known(state) and known(state.legs)

    @property
    def working(self) -> bool:
        """Steps happen: between the samples, moments ago, or one is under way for a plausible time."""
        both = self.pair.both
        if not known(both):
            return False
        first, second = (e.progress for e in both)
        if not known(first) or not known(second):
            return False
        recent = second.last_step_age is not None and second.last_step_age < 2.0
        inside = second.stepping is not None and second.stepping < STEP
        return second.steps != first.steps or recent or inside

    def before(self, leg: Leg) -> Leg | None:
        """The same request in the first sample."""
        first = self.pair.first.picture
        legs = first.legs if known(first) and known(first.legs) else ()
        return next((other for other in legs if other.id == leg.id), None)


@dataclass(frozen=True)
class RouterView:
    member: Member
    pair: Pair[Router]
    traces: Traces = NO_TRACES

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def role(self) -> str:
        return self.member.role

    @property
    def reach(self) -> Reach:
        return self.pair.second.reach

    @property
    def state(self) -> Router | Missing:
        return self.pair.second.picture


@dataclass(frozen=True)
class OtherView:
    """A server beside engines and router: a store, a sidecar, a control plane."""

    member: Member
    traces: Traces = NO_TRACES

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def role(self) -> str:
        return self.member.role


Party = EngineView | RouterView | OtherView


@dataclass(frozen=True)
class Tally:
    """How transfers of one edge went, over the time that was looked at."""

    prefill: str
    decode: str
    ok: int
    failed: int


@dataclass(frozen=True)
class Change:
    """What was done to the fleet.

    `what`: restarted, co-restarted, deployed, upgraded, setting, scaled, stopped, other. `cured` says whether
    the trouble ended with it, None when nobody said.
    """

    what: str
    party: str
    at: float | None
    name: str = ""
    value: str = ""
    cured: bool | None = None


@dataclass(frozen=True)
class HalfWay:
    """The newest run, where it stops and starts engines and was not ended: a co-restart of `cell`, or with
    `cell` "" a deploy or a rollback. `state`: failed, interrupted or died; `command`: the words behind pdctl.
    """

    run: str
    cell: str
    state: str
    command: str = ""

    def concerns(self, cell: str) -> bool:
        return self.cell in ("", cell)

    @property
    def verb(self) -> str:
        """What runs it once more, from what is true then."""
        return f"pdctl restart --co {self.cell}" if self.cell else "pdctl deploy"

    @property
    def words(self) -> str:
        """The begin of a sentence."""
        how = {"failed": "failed", "died": "died"}.get(self.state, "was interrupted")
        return f"Run {self.run} (pdctl {self.command}) {how}" if self.command else f"Run {self.run} {how}"

    @property
    def record(self) -> str:
        return f"run {self.run}: {self.state}; `pdctl resume {self.run}` goes on with it"


@dataclass(frozen=True)
class Left:
    """The recovery record of a run that is gone: what it set on the fleet and did not put back.

    `timeouts[unit]` are seconds by a timeout's short name, `faults[engine]` fault points that it armed.
    `run`, `state` and `command` are "" for a run that is not in the journal.
    """

    run: str
    state: str
    command: str
    timeouts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def concerns(self, unit: str, timeout: Timeout) -> bool:
        """Whether the value in force is the one that it set."""
        return timeout.source == "admin" and self.timeouts.get(unit, {}).get(timeout.name) == timeout.value

    @property
    def words(self) -> str:
        """Evidence: which run, and what puts it right."""
        who = f"run {self.run} (pdctl {self.command})" if self.run else "an interrupted run"
        how = {"failed": "failed", "died": "died"}.get(self.state, "was interrupted")
        return f"{who} set it and {how} before it put it back; `{PUTS_BACK}` does"


@dataclass(frozen=True)
class Suppression:
    """[[suppress]] of the fleet file: findings `code` that touch nothing but `subject` (a pattern, as of file
    names) do not count before then (Unix seconds): the end of its last day.
    """

    code: str
    subject: str
    reason: str
    until: float

    @property
    def last_day(self) -> str:
        """2026-08-31, in UTC."""
        return datetime.fromtimestamp(math.ceil(self.until) - 1, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True)
class HostView:
    """One host: its clock against ours, its disk at pdctl's root, the ports of its units, the peers that
    its units connect to ("address:port" -> how it went).
    """

    name: str
    address: str
    clock: Clock | Missing
    disk: Room | Missing
    ports: tuple[PortState, ...] | Missing
    reach: dict[str, Reached] | Missing
    traces: HostTraces = NO_HOST_TRACES


@dataclass(frozen=True)
class Facts:
    """`at` is when the second sample was taken (Unix seconds). `run` is the living run or person that holds
    the fleet's lock, as words; "" when nobody does. `half_way` and `left` are of the machine that asked.
    `tallies` and `changes` are what somebody told,
    `said` what they said of answers in their own words; `unread` are (document, why it was not read).
    """

    fleet: str
    at: float
    drill: bool
    engines: tuple[EngineView, ...]
    router: RouterView | Missing
    hosts: tuple[HostView, ...] = ()
    run: str | Missing = field(default_factory=lambda: Missing("the lock was not looked at"))
    half_way: HalfWay | None = None
    left: Left | None = None
    others: tuple[OtherView, ...] = ()
    tallies: tuple[Tally, ...] = ()
    changes: tuple[Change, ...] = ()
    said: tuple[Event, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def parties(self) -> tuple[Party, ...]:
        """Engines, router, others."""
        router = (self.router,) if isinstance(self.router, RouterView) else ()
        return (*self.engines, *router, *self.others)

    def left_behind(self, unit: str, timeout: Timeout) -> Left | None:
        """The run that set this value and is gone; None while a run is at work."""
        left = self._left
        return left if left is not None and left.concerns(unit, timeout) else None

    def armed_behind(self, engine: str, fault: str) -> Left | None:
        """The run that armed this fault point and is gone."""
        left = self._left
        return left if left is not None and fault in left.faults.get(engine, ()) else None

    @property
    def _left(self) -> Left | None:
        return self.left if known(self.run) and not self.run else None

    def party(self, name: str) -> Party | None:
        return next((p for p in self.parties if p.name == name), None)

    def events(self, *signs: str) -> list[Event]:
        """Lines of all logs with one of these signs, oldest first; "nixl." stands for the whole family."""
        found = [e for p in self.parties for e in p.traces.of(*signs)]
        found += self._around.of(*signs)
        return sorted(found, key=lambda e: (e.at if e.at is not None else float("inf"), e.party, e.order))

    @cached_property
    def _around(self) -> Traces:
        """What hosts and people say."""
        return Traces(events=(*self.said, *(e for h in self.hosts for e in h.traces.events)))

    def host(self, name: str) -> HostView | None:
        return next((h for h in self.hosts if h.name == name), None)

    def engine(self, name: str) -> EngineView | None:
        return next((e for e in self.engines if e.name == name), None)

    def cell(self, cell: str, role: str) -> tuple[EngineView, ...]:
        return tuple(e for e in self.engines if e.member.cell == cell and e.role == role)

    def edges(self) -> Iterator[tuple[EngineView, EngineView]]:
        """Every (prefill, decode) pair of one cell."""
        for prefill in self.engines:
            if prefill.role == "prefill":
                for decode in self.cell(prefill.member.cell, "decode"):
                    yield prefill, decode

    @property
    def router_state(self) -> Router | Missing:
        """The router's newest state, Missing when it does not answer now."""
        return self.router.state if isinstance(self.router, RouterView) else self.router

    @property
    def requests(self) -> tuple[RouterRequest, ...] | Missing:
        """The router's ledger, newest sample."""
        state = self.router_state
        return state if isinstance(state, Missing) else state.requests

    @property
    def requests_before(self) -> tuple[RouterRequest, ...]:
        """The router's ledger in the first sample; empty when it is not known."""
        first = self.router.pair.first.picture if isinstance(self.router, RouterView) else self.router
        requests = first if isinstance(first, Missing) else first.requests
        return () if isinstance(requests, Missing) else requests

    def members(self) -> Iterator[Member]:
        for view in self.engines:
            yield view.member
        if known(self.router):
            yield self.router.member


def peer_of(view: EngineView, other: EngineView) -> Peer | None:
    """How `view` sees `other`: its newest peer entry by instance name, link port or address."""
    addresses = {other.member.bootstrap, other.member.url.removeprefix("http://")}
    named = [p for p in view.peers if p.instance == other.name]
    found = named or [p for p in view.peers if p.address in addresses]
    live = [p for p in found if not p.stale] or found
    return min(live, key=lambda p: p.since_age if p.since_age is not None else 1e18, default=None)
