"""What each stage of a co-restart does to one cell; every method blocks until its stage is true.

StageFailed says why a stage cannot become true, DeadlineError that it did not in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

from pdctl.errors import DeadlineError, PdctlError
from pdctl.facts import leftovers
from pdctl.facts.collect import unit_of
from pdctl.facts.missing import Missing
from pdctl.facts.unit import meaning
from pdctl.fleet.model import Cell, Engine
from pdctl.flows import admin
from pdctl.flows.asking import ask_host
from pdctl.flows.changing import doing
from pdctl.flows.co_restart.carried import GRACE, Carried, resumes
from pdctl.flows.co_restart.hold import Admissions, caught_up
from pdctl.flows.co_restart.report import Start
from pdctl.flows.co_restart.states import DEADLINES, Machine, Stage, truth
from pdctl.flows.context import Context
from pdctl.flows.edge_canary import Canary, send
from pdctl.flows.last_words import last_words
from pdctl.flows.ready import WORDS, observed
from pdctl.flows.standstill import standstill
from pdctl.flows.waiting import until
from pdctl.remote.fanout import begin, fan_out

T = TypeVar("T")
DRAIN_DEFAULT = 30.0
DRAINS = ("draining", "drained")


class StageFailed(PdctlError):
    """A stage cannot become true; the message says why."""


def together(engines: Sequence[Engine], act: Callable[[Engine], T]) -> list[T]:
    """`act` on every engine at once; the first error is raised after all have ended, Ctrl-C at once."""
    acting = [begin(partial(act, engine)) for engine in engines]
    wait(acting)
    return [future.result() for future in acting]


# Ends of an engine by itself, one behind the other, after which nobody waits for a better one.
_LIVES = 2


class Steps:
    """One co-restart of one cell. `alone` is True when no other cell can take the traffic.

    `drain`: seconds that requests get to end by themselves, if not what suits the router. `wait`: seconds
    for an engine to start and to load its model.
    """

    def __init__(
        self, ctx: Context, cell: Cell, alone: bool, drain: float | None = None, wait: float | None = None
    ) -> None:
        self._ctx = ctx
        self.cell = cell
        self.alone = alone
        self.decodes = [e for e in cell.engines if e.role != "prefill"]
        self.prefills = list(cell.prefills)
        self.notes: list[str] = []
        self.proof: list[str] = []
        self.starts: dict[str, Start] = {}
        self.canaries: list[Canary] = []
        self._was: dict[str, str | None] = {}
        self._prints: dict[str, leftovers.Footprint] = {}
        self._drain = DRAIN_DEFAULT
        self._grace = drain
        self._wait = wait
        self.carried = Carried(ctx, cell)
        self._resumes = False
        self._began: dict[str, float] = {}
        self._ends: dict[str, str] = {}
        # Whether an engine was told to stop; and orders to drain, which outlive an interrupt.
        self.stopping = False
        self._draining: list[Future[None]] = []
        self._drained: set[str] = set()
        # Engines that stand still, with why: a drain of them cannot come.
        self._still: dict[str, str] = {}
        self._admissions = Admissions(ctx, cell, alone, self.notes)

    def deadline(self, stage: Stage) -> float:
        """Seconds for a stage; LINK counts them from the models' being loaded."""
        starting = stage in (Stage.START_PREFILL, Stage.START_DECODE)
        return self._wait if starting and self._wait is not None else DEADLINES[stage]

    def truth(self, machine: Machine) -> list[str]:
        return truth(machine, self.alone, self.routed, not self.unknown)

    # hold, drain

    def hold(self, seconds: float) -> None:
        """Remember the old lives, then hold admissions, or cordon the cell when others can serve."""
        for engine in self.cell.engines:
            state = self._state(engine)
            self._was[engine.name] = state.get("incarnation")
            if state.get("status") in DRAINS:
                self._drained.add(engine.name)
            limit = (state.get("timeouts") or {}).get("drain") or {}
            self._drain = max(0.0, float(limit.get("value", self._drain)))
        self._remember()
        self._admissions.hold(seconds)
        self._stand_still()
        self._resumes = self.routed and resumes(self._admissions.state())
        if self._grace is None:
            self._grace = min(GRACE, self._drain) if self._resumes else self._drain

    def _stand_still(self) -> None:
        """Whom no drain can reach; what cannot be told counts as moving."""
        engines = {e.name: e for e in self.cell.engines}
        found = fan_out(engines, lambda name: standstill(self._ctx, engines[name]))
        self._still = {name: why for name, why in found.items() if isinstance(why, str) and why}
        self.notes += [f"{why}: it is not drained, and ended at once." for why in self._still.values()]

    @property
    def routed(self) -> bool:
        """Whether a router runs that could be held."""
        return self._admissions.routed

    @property
    def unknown(self) -> set[str]:
        """Engines of the cell that the running router was never told of."""
        return self._admissions.unknown

    def take_back(self, seconds: float) -> list[str]:
        """End the hold and the drains of this run, since nothing was stopped; what is true then.

        What was held or drained before stays so. PdctlError when they cannot be seen to have ended.
        """
        wait(self._draining, seconds)
        # All that were told: what an engine says of itself may be older than the order.
        told = [e.url for e in self._alive_before() if self._draining and e.name not in self._drained]
        resumed = fan_out(told, lambda url: admin.post(self._ctx, url, "resume", timeout=seconds))
        held = self._admissions.take_back(seconds)
        for error in resumed.values():
            if isinstance(error, PdctlError):
                raise error
        if told:
            until(self._draining_still, seconds, 0.1)
        ended = ["the hold"] * held + ["the drain"] * bool(told)
        return [f"Taken back: {' and '.join(ended)}."] if ended else ["Admissions are as they were."]

    def _draining_still(self) -> str:
        states = {e.name: self._state(e).get("status") for e in self._alive_before()}
        still = [n for n, status in states.items() if status in DRAINS and n not in self._drained]
        return f"{', '.join(still)} still drains" if still else ""

    def let_go(self) -> None:
        """The run ends here, whatever it came to."""
        self._admissions.let_go()

    def _remember(self) -> None:
        """What every engine of the cell owns while it lives, in one question a host."""
        for host in self._hosts():
            names = [e.name for e in self.cell.engines if e.host == host]
            pids = {n: s.pid for n, s in self._ctx.units(host).status(names).items() if s.pid is not None}
            if pids:
                request = leftovers.footprint_request(list(pids.values()))
                rows = ask_host(self._ctx, host, request).of("footprint")
                if isinstance(rows, Missing):
                    self.notes.append(f"What the engines on {host} own cannot be read: {rows.reason}.")
                self._prints |= {name: leftovers.parse_footprint(pid, rows) for name, pid in pids.items()}

    def _hosts(self) -> list[str]:
        return list(dict.fromkeys(e.host for e in self.cell.engines))

    def drain(self, seconds: float) -> None:
        """Requests of the cell end by themselves within the grace; the engines end the rest.

        A router that resumes goes on with the rest afterwards; any other one has lost them.
        """
        grace = self._drain if self._grace is None else self._grace
        grace = grace if self._moves() else 0.0
        left: list[str] = []
        try:
            until(self._active, grace, 0.1)
        except DeadlineError:
            left = self.carried.on_cell()
            after = "they go on after the restart" if self._resumes else "the engines ended them"
            self.notes.append(f"After {grace:g} s still {len(left)} requests on the cell; {after}.")
        self._draining = [begin(partial(self._drain_one, e)) for e in self._alive_before()]
        wait(self._draining)
        until(self._undrained, seconds, 0.1)
        if self._resumes:
            self.carried.take(left)

    def _alive_before(self) -> list[Engine]:
        """Those that can be told something."""
        return [e for e in self.cell.engines if self._was.get(e.name) and e.name not in self._still]

    def _moves(self) -> bool:
        """Whether a request of the cell can end by itself."""
        return any(self._still.keys().isdisjoint((p.name, d.name)) for p, d in self.cell.edges)

    def _active(self) -> str:
        """How many requests the router has on this cell, "" for none."""
        busy = self.carried.on_cell() if self.routed else []
        return f"{len(busy)} requests on the cell" if busy else ""

    def _drain_one(self, engine: Engine) -> None:
        try:
            admin.post(self._ctx, engine.url, "drain", {"timeout": 1.0}, timeout=15.0)
        except PdctlError as error:
            self.notes.append(f"{engine.name} could not be drained: {error.message}")

    def _undrained(self) -> str:
        for engine in self._alive_before():
            state = self._state(engine)
            if state.get("requests") and state.get("status") != "drained":
                return f"{len(state['requests'])} requests on {engine.name}"
        return ""

    # stop, prove

    def stop(self, engines: Sequence[Engine]) -> None:
        def one(engine: Engine) -> None:
            with doing(self._ctx, f"stop/{engine.name}", engine.host, f"stop {engine.name}"):
                status = self._ctx.units_of(engine).stop(engine.name, at_once=engine.name in self._still)
                if status.pid is not None:
                    raise StageFailed("not_stopped", f"{engine.name} still runs as pid {status.pid}.")

        self.stopping = True
        together(engines, one)

    def prove(self, seconds: float) -> None:
        """Processes gone, ports free, shared and GPU memory gone, as each host itself sees it."""
        end = time.monotonic() + seconds
        for host in self._hosts():
            stopped = [self._stopped(e) for e in self.cell.engines if e.host == host]
            left = partial(self._left, host, stopped)
            until(left, max(0.0, end - time.monotonic()), 0.1)
            devices = {e.name: e.spec.device for e in self.cell.engines}
            self.proof += [leftovers.proof(s, devices[s.name]) for s in stopped]

    def _stopped(self, engine: Engine) -> leftovers.Stopped:
        seen = self._prints.get(engine.name, leftovers.Footprint())
        return leftovers.Stopped(engine.name, engine.address, engine.ports, seen)

    def _left(self, host: str, stopped: list[leftovers.Stopped]) -> str:
        """The first thing that is still there on `host`, "" for nothing."""
        rows = ask_host(self._ctx, host, leftovers.left_request(stopped)).of("left")
        if isinstance(rows, Missing):
            raise StageFailed("not_observable", f"What is left on {host} cannot be seen: {rows.reason}.")
        remains = (f"{name}: {what}" for name, row in rows.items() if (what := leftovers.first_left(row)))
        return next(remains, "")

    # start, link

    def start(self, engines: Sequence[Engine], seconds: float) -> None:
        """Started, answering, and a life that was not there before."""

        def one(engine: Engine) -> None:
            started = self._began[engine.name] = time.monotonic()
            with doing(self._ctx, f"start/{engine.name}", engine.host, f"start {engine.name}"):
                self._ctx.units_of(engine).start(engine.name)
            until(lambda: self._unborn(engine), seconds, 0.1)
            state = self._state(engine)
            took = time.monotonic() - started
            was = self._was.get(engine.name)
            self.starts[engine.name] = Start(engine.name, took, None, str(state.get("incarnation")), was)

        together(engines, one)

    def _unborn(self, engine: Engine) -> str:
        state = self._state(engine)
        new = state.get("incarnation")
        if new and new != self._was.get(engine.name):
            return ""
        ends = self._alive(engine)
        return (
            f"{engine.name} answers nothing{ends}" if not new else f"{engine.name} still shows its old life"
        )

    def _alive(self, engine: Engine) -> str:
        """How it ended since it was started, with its last words; "" when it did not.

        StageFailed for one whose supervisor has given it up, and for one that ended by itself in each of its
        first lives: another one would end as they did.
        """
        unit = unit_of(self._ctx.units_of(engine).status([engine.name])[engine.name])
        over = unit.state in ("failed", "absent", "stopped")
        if over or unit.state == "backoff":
            words = last_words(self._ctx.units_of(engine).logs(engine.name, WORDS))
            why = unit.reason or meaning(unit.exit)
            self._ends[engine.name] = (f": {words}" if words else "") + f" ({unit.state}: {why})"
        ends = self._ends.get(engine.name, "")
        lives = unit.restarts + (unit.state == "backoff")
        if over or (lives >= _LIVES and not unit.ended_by and (unit.exit or 0) > 0):
            raise StageFailed("start_failed", f"{engine.name} did not start{ends}.")
        return f", it ended{ends}" if ends else ""

    def link(self, seconds: float) -> None:
        """Every engine ready, every edge linked by the lives that run now, seen from both ends."""
        until(self._loading, self.deadline(Stage.START_DECODE), 0.1)
        until(self._unlinked, seconds, 0.1)

    def _loading(self) -> str:
        """The engines answer before their models are there, and a large one takes its time."""
        for engine in self.cell.engines:
            if self._state(engine).get("status") == "starting":
                self._alive(engine)
                return f"{engine.name} loads its model"
        return ""

    def _unlinked(self) -> str:
        states = {e.name: self._state(e) for e in self.cell.engines}
        missing = ""
        for engine in self.cell.engines:
            state = states[engine.name]
            start = self.starts.get(engine.name)
            if not state:
                # It answered a moment ago: gone for good, or on its way back.
                ends = self._alive(engine)
                missing = missing or f"{engine.name} answers nothing{ends}"
            elif not state.get("ready"):
                missing = missing or f"{engine.name} is not ready ({', '.join(state.get('not_ready', []))})"
            elif start and start.ready_s is None:
                took = time.monotonic() - self._began[engine.name]
                self.starts[engine.name] = Start(
                    start.engine, start.answered_s, took, start.incarnation, start.was
                )
        for prefill, decode in self.cell.edges:
            for one, other in ((prefill, decode), (decode, prefill)):
                if not _sees(states[one.name], other.name, states[other.name].get("incarnation")):
                    missing = missing or f"{one.name} is not linked to the new life of {other.name}"
        return missing

    # canary, resume

    def canary(self, seconds: float) -> None:
        """Small and large over every edge; the body is checked, not the status."""
        end = time.monotonic() + seconds
        for prefill, decode in self.cell.edges:
            for size in ("small", "large"):
                left = end - time.monotonic()
                if left <= 0:
                    raise DeadlineError("deadline", "The canaries did not end in time.")
                result = send(self._ctx, prefill, decode, size, min(60.0, left))
                self.canaries.append(result)
                if result.problem:
                    where = f"{prefill.name} -> {decode.name}"
                    raise StageFailed("canary_failed", f"The {size} canary over {where}: {result.problem}.")

    def resume(self, seconds: float) -> None:
        """Once the router itself sees the new lives ready, so that nobody waits for a pair in vain."""
        if not self.routed:
            self.notes.append("Nothing is served yet: start the router with `pdctl deploy`.")
            return
        seen = {
            e.name: self.starts[e.name].incarnation if e.name in self.starts else None
            for e in self.cell.engines
            if e.name not in self.unknown
        }
        behind = caught_up(self._admissions, seen, seconds / 2)
        if behind:
            self.notes.append(f"Resumed although the router lags: {behind}")
        self._admissions.resume(seconds / 2)
        if said := self.carried.follow(seconds / 2):
            self.notes.append(said)
        if self.unknown:
            self.notes.append(
                f"The router was never told of {', '.join(sorted(self.unknown))} and sends nothing there "
                "until the next `pdctl deploy`."
            )

    def observe(self) -> list[str]:
        """What the router and each engine look like now, in one sentence each; never raises."""
        front = self._admissions.state()
        lines = [f"router: admission {front['admission']}" if front else "router: does not answer"]
        return [*lines, *observed(self._ctx, self.cell.engines)]

    def _state(self, engine: Engine) -> dict[str, Any]:
        return admin.state(self._ctx, engine.url)


def _sees(state: dict[str, Any], other: str, incarnation: str | None) -> bool:
    """Whether `state` has a live link to that very life of `other`."""
    return incarnation is not None and any(
        p["linked"] and not p["stale"] and p["incarnation"] == incarnation and p["instance"] in (other, "")
        for p in state.get("peers", [])
    )
