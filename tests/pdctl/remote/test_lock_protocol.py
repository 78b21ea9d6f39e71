"""The lock's protocol under every order of events: a run that may go on holds the lock, so at most one does.

The host's decisions, the client and the lease are the real ones; time, processes and the network are made
up. Operators 0 and 1 share a machine, 2 has its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pdctl.errors import LockedError, UnreachableError
from pdctl.remote import lock as lock_module
from pdctl.remote import lock_tool
from pdctl.remote.lock import STALE, FleetLock, HeldError, Holder, holder_for
from pdctl.remote.lock_lease import FRESH, Lease
from pdctl.remote.operator import Operator
from tests.examples import examples

WHO = st.integers(0, 2)
SPAN = st.sampled_from([0.0, FRESH - 1, STALE + 1])


@dataclass
class Process:
    operator: Operator
    state: str = "runs"
    cut: bool = False
    lease: Lease | None = None
    forced: bool = False


@dataclass
class World:
    """The control host and its clocks; `t` is true time, which monotonic clocks of operators follow."""

    t: float = 0.0
    wall: float = 1e9
    boot: str = "boot 0"
    booted: float = -1000.0
    entry: dict[str, Any] | None = None
    beat_at: dict[str, float] = field(default_factory=dict)

    def ask(self, verb: str, question: dict[str, Any]) -> dict[str, Any]:
        clock = {"now": self.wall + self.t, "boot": self.boot, "up": self.t - self.booted}
        self.entry, answer = lock_tool.settle(verb, question, self.entry, clock)
        if self.entry is not None and (answer.get("taken") or answer.get("mine")):
            self.beat_at[self.entry["id"]] = self.t
        return answer


def chosen(among: list[Process], pick: int) -> Process:
    return among[pick % len(among)]


class Protocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.count = 0
        self.processes = [self.born(n) for n in range(3)]
        self.patch = pytest.MonkeyPatch()

    def teardown(self) -> None:
        self.patch.undo()

    def born(self, n: int) -> Process:
        self.count += 1
        return Process(
            Operator("op", f"m{max(0, n - 1)}", f"boot{max(0, n - 1)}", 100 + self.count, self.count)
        )

    def as_(self, p: Process) -> FleetLock:
        """The lock as this process asks for it; it sees the processes of its own machine only."""

        def gone(machine: str, pid: int, start: int | None) -> bool | None:
            if machine != p.operator.machine:
                return None
            return not any(o.operator.pid == pid and o.state != "dead" for o in self.processes)

        def ask(verb: str, question: dict[str, Any]) -> dict[str, Any]:
            if p.cut:
                raise UnreachableError("cut", "no way to the control host")
            return self.world.ask(verb, question)

        self.patch.setattr(lock_module, "gone", gone)
        return FleetLock("ctl", ask)

    def those(self, *states: str, lease: bool | None = None) -> list[Process]:
        found = [p for p in self.processes if p.state in states]
        return [p for p in found if lease is None or (p.lease is not None) == lease]

    @precondition(lambda self: self.those("runs", lease=False))
    @rule(pick=WHO, heard=st.sampled_from([True, True, True, False]))
    def takes(self, pick: int, heard: bool) -> None:
        """Not `heard`: the answer is lost, the operator gives up and the lock stays."""
        p = chosen(self.those("runs", lease=False), pick)
        self.count += 1
        mine = holder_for(p.operator, f"id{self.count}", "pdctl deploy", "run")
        try:
            over = self.as_(p).take(mine)
        except HeldError as error:
            self.was_right_to_refuse(p, error.holder)
        except UnreachableError:
            assert p.cut
        else:
            assert over is None or over.kind == "auto", "a manual lock was taken over"
            if not heard:
                return
            p.lease = Lease(self.as_(p), mine, over, lambda text: None, lambda: self.world.t)
            p.forced = False

    def was_right_to_refuse(self, p: Process, holder: Holder) -> None:
        """No heartbeat can come while the control host boots, so nobody is dead before it had time to."""
        if holder.machine == p.operator.machine:
            lives = any(o.operator.pid == holder.pid for o in self.those("runs", "frozen"))
        else:
            lives = self.world.t - max(self.world.booted, self.world.beat_at[holder.id]) <= STALE
        assert holder.manual or lives, "a dead holder was respected"

    @precondition(lambda self: self.those("runs", lease=True))
    @rule(pick=WHO)
    def beats(self, pick: int) -> None:
        p = chosen(self.those("runs", lease=True), pick)
        if p.lease is not None:
            self.as_(p)
            p.lease.beat()

    @precondition(lambda self: self.those("runs", lease=True))
    @rule(pick=WHO)
    def ends(self, pick: int) -> None:
        p = chosen(self.those("runs", lease=True), pick)
        if p.lease is not None:
            self.as_(p)
            p.lease.end()
            p.lease = None

    @precondition(lambda self: self.those("runs", lease=True))
    @rule(pick=WHO, seconds=SPAN)
    def is_frozen_for_a_while(self, pick: int, seconds: float) -> None:
        chosen(self.those("runs", lease=True), pick).state = "frozen"
        self.world.t += seconds

    @precondition(lambda self: self.those("frozen"))
    @rule(pick=WHO)
    def is_thawed(self, pick: int) -> None:
        chosen(self.those("frozen"), pick).state = "runs"

    @precondition(lambda self: self.those("runs", "frozen", lease=True))
    @rule(pick=WHO, seconds=SPAN)
    def dies_and_another_is_started(self, pick: int, seconds: float) -> None:
        p = chosen(self.those("runs", "frozen", lease=True), pick)
        self.processes[self.processes.index(p)] = self.born(self.processes.index(p))
        self.world.t += seconds

    @precondition(lambda self: self.those("runs", lease=True))
    @rule(pick=WHO, seconds=SPAN)
    def is_cut_off_or_back(self, pick: int, seconds: float) -> None:
        p = chosen(self.those("runs", lease=True), pick)
        p.cut = not p.cut
        self.world.t += seconds

    @rule(seconds=SPAN)
    def time_passes(self, seconds: float) -> None:
        self.world.t += seconds

    @rule(clock=st.sampled_from([-86400.0, 86400.0]), reboots=st.booleans())
    def the_control_hosts_clock_is_set(self, clock: float, reboots: bool) -> None:
        """A reboot takes longer than a holder trusts its last heartbeat."""
        self.world.wall += clock
        if reboots:
            self.world.t += FRESH + 1
            self.world.boot, self.world.booted = f"boot {self.world.t}", self.world.t

    @precondition(lambda self: self.world.entry is not None)
    @rule()
    def somebody_releases_it_by_force(self) -> None:
        assert self.world.entry is not None
        id = self.world.entry["id"]
        assert self.as_(self.born(2)).release(id)
        for other in self.processes:
            if other.lease is not None and other.lease.holder.id == id:
                other.forced = True

    @precondition(lambda self: self.world.entry is None)
    @rule()
    def a_person_takes_it(self) -> None:
        self.count += 1
        person = self.born(2)
        self.as_(person).take(holder_for(person.operator, f"id{self.count}", "c", reason="by hand"))

    @invariant()
    def whoever_may_go_on_holds_the_lock(self) -> None:
        may = []
        for p in self.processes:
            if p.state != "runs" or p.lease is None or p.lease.lost:
                continue
            self.as_(p)
            try:
                p.lease.check()
            except LockedError:
                continue
            if p.forced:
                # Known at the next heartbeat; that is what the question before --force says.
                continue
            may.append(p)
            held = self.world.entry
            assert held is not None and held["id"] == p.lease.holder.id
        assert len(may) <= 1


Protocol.TestCase.settings = settings(max_examples=examples(400), stateful_step_count=50, deadline=None)
test_at_most_one_run_may_go_on = Protocol.TestCase
