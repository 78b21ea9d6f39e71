"""The loop around the rules: switches on the control host, evidence, one act at a time, what died goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdctl.adapters.picture import Reach
from pdctl.bundle.documents import Documents
from pdctl.errors import ConfigError, LockedError
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.changing import fleet_lock
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.supervise import daemon as daemon_module
from pdctl.flows.supervise import evidence, judging
from pdctl.flows.supervise import service as service_module
from pdctl.flows.supervise.act import NOTE, Outcome, Terms, act
from pdctl.flows.supervise.daemon import Daemon, half_way
from pdctl.flows.supervise.judging import Judging, Verdict
from pdctl.flows.supervise.pause import pause, resume
from pdctl.flows.supervise.service import Service
from pdctl.flows.supervise.switch import LEASE, Standby, lease_of, pause_of
from pdctl.remote import lock_lease
from pdctl.remote.fanout import begin
from pdctl.remote.journal import Call, Journal
from pdctl.remote.journal_read import list_runs
from pdctl.remote.journal_store import Store
from pdctl.remote.lock import holder_for
from pdctl.remote.operator import Operator, me
from pdctl.supervisor.decide import Decision
from pdctl.supervisor.judge import Seen
from pdctl.supervisor.observation import Observation
from pdctl.supervisor.policy import Act
from pdctl.supervisor.states import State
from pdctl.units.notify import NotifySocket
from tests.pdctl.models import model_folder
from tests.pdctl.supervisor.bed import Bed, Virtual, finding, policy

ELSEWHERE = Operator("ann", "elsewhere", "another boot pid:[1]", 4242, 17)
ABORT = Decision(Act.ABORT, "router", "a", "PD601", "router", "forgotten", request="r1")
WEDGE = finding("PD501", subject="prefill-0 -> decode-0")


def terms(lease: Callable[[], None] = lambda: None) -> Terms:
    return Terms(1, frozenset(), 0.5, lease)


def no_lease() -> None:
    raise LockedError("lock_lost", "This run stops: another supervisor has it.")


def until(check: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.02)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Nothing of it is deployed."""
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model")))
    return load_fleet(tmp_path / "fleet.toml")


def test_nothing_is_done_while_paused_without_the_lease_or_while_somebody_holds_the_fleet(
    fleet: Fleet,
) -> None:
    with Context(fleet) as ctx:
        pause(ctx, "new disks", None, wait=False)
        refused = act(fleet, ABORT, terms(), print)
        assert refused.outcome == "refused" and "paused by" in refused.detail
        assert resume(ctx) and not resume(ctx)
        assert act(fleet, ABORT, terms(no_lease), print).outcome == "refused"
        fleet_lock(ctx).take(holder_for(ELSEWHERE, "hand", "pdctl lock take", reason="moving racks"))
        runs = len(list_runs(fleet.paths.journal))
        assert "moving racks" in act(fleet, ABORT, terms(), print).detail
        assert len(list_runs(fleet.paths.journal)) == runs, "it did not even begin"


def test_what_fails_is_an_outcome_and_the_lock_is_given_back(fleet: Fleet) -> None:
    found = act(fleet, ABORT, terms(), print)
    assert found.outcome == "failed" and "cannot be reached" in found.detail
    with Context(fleet) as ctx:
        assert fleet_lock(ctx).look() is None


def test_an_act_without_proof_is_refused(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    from pdctl.flows.supervise import act as module
    from pdctl.flows.supervise.prove import Proof

    wedge = Decision(Act.CO_RESTART, "a", "a", "PD501", "x", "why", proof=True)
    proofs = [Proof({}, passed=("p -> d",)), Proof({"p -> d": "silent"}, passed=("p -> e",))]
    monkeypatch.setattr(module, "prove", lambda ctx, cell, seconds: proofs.pop(0))
    assert "not proven" in act(fleet, wedge, terms(), print).detail
    assert "no other cell is healthy" in act(fleet, wedge, terms(), print).detail
    assert not proofs


def test_one_of_two_supervisors_acts(fleet: Fleet) -> None:
    said: list[str] = []
    with Context(fleet, say=said.append) as ctx:
        first, second = Standby(ctx, said.append), Standby(ctx, said.append)
        assert first.acquire() and not second.acquire() and not second.acquire()
        assert len([s for s in said if "this one stands by" in s]) == 1
        with pytest.raises(LockedError):
            second.check()
        first.check()
        first.end()
        assert second.acquire()
        second.end()
        dead = Operator("bob", me().host, me().machine, me().pid, (me().start or 0) - 1)
        lease_of(ctx).take(holder_for(dead, "dead", "pdctl supervise"))
        assert first.acquire() is True, "the lease of one that is dead is taken over"
        first.end()


def test_a_frozen_supervisor_loses_its_lease_although_its_process_lives(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_lease, "BEAT", 3600.0)
    with Context(fleet) as ctx:
        frozen, other = Standby(ctx, print), Standby(ctx, print)
        assert frozen.acquire() and not other.acquire()
        path = Path(fleet.hosts[fleet.control].root, LEASE)
        entry = json.loads(path.read_text())
        path.write_text(json.dumps({**entry, "up": entry["up"] - 61, "heartbeat": entry["heartbeat"] - 61}))
        assert other.acquire()
        monkeypatch.setattr(lock_lease, "FRESH", 0.0)
        with pytest.raises(LockedError):
            frozen.check()
        other.end()


def test_pause_waits_for_what_the_supervisor_is_at_and_for_nobody_else(fleet: Fleet) -> None:
    with Context(fleet) as ctx:
        fleet_lock(ctx).take(holder_for(ELSEWHERE, "hand", "pdctl lock take", reason="racks"))
        assert pause(ctx, "", 60.0, wait=True)[1] == "", "a person's lock is no act of ours"
        fleet_lock(ctx).release("hand")
        lease_of(ctx).take(holder_for(me(), "lease", "pdctl supervise"))
        fleet_lock(ctx).take(holder_for(me(), "run", "pdctl restart --co a", "r1"))
        assert "restart --co a" in pause(ctx, "", 60.0, wait=False)[1]
        waiting = begin(lambda: pause(ctx, "", 60.0, wait=True)[1])
        assert not waiting.done()
        fleet_lock(ctx).release("run")
        assert waiting.result(60) == ""


def died(fleet: Fleet, note: bool = True, words: tuple[str, ...] = ("--co", "a")) -> str:
    """A run whose process is gone, of a supervisor."""
    call = Call(" ".join(("restart", *words)), ("restart", *words, "--yes"))
    with Journal(fleet.paths.journal, call) as journal:
        if note:
            journal.note(NOTE, incident=1)
        with journal.doing("a/drain", "fleet", "cell a: drain engines"):
            pass
    store = Store(fleet.paths.journal)
    store.write("UPDATE runs SET state = 'running', start = 1 WHERE id = ?", (journal.id,))
    store.close()
    return journal.id


def test_only_a_co_restart_of_a_supervisor_that_nobody_came_after_is_gone_on_with(fleet: Fleet) -> None:
    assert half_way(fleet) is None
    died(fleet, note=False)
    assert half_way(fleet) is None, "a person's own"
    run = died(fleet)
    found = half_way(fleet)
    assert found is not None and (found.run, found.cell, found.step) == (run, "a", "cell a: drain engines")
    with Journal(fleet.paths.journal, "abort x"):
        pass
    assert half_way(fleet) == found
    with Journal(fleet.paths.journal, "deploy"):
        pass
    assert half_way(fleet) is None, "somebody has seen to it"


def at_once(act: Callable[[], Any]) -> Future[Any]:
    """A thread's work, done already."""
    done: Future[Any] = Future()
    done.set_result(act())
    return done


class Turns:
    """A daemon whose looks and verdicts are given, and whose acts end when they are told to."""

    def __init__(self, ctx: Context, patch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        ctx.say = self.said.append
        self.clock, self.found = Virtual(), list[Seen]()
        self.acts: list[tuple[Decision, str]] = []
        self.end = threading.Event()
        self.outcome: Outcome | None = Outcome("done", "so it was")
        self.path = ctx.fleet.dir
        patch.setattr(judging, "begin", at_once)
        patch.setattr(Judging, "_judge", lambda _, cells, at: self.judge(cells, at))
        patch.setattr(daemon_module, "act", self.act)
        self.held, self.paused = "", ""
        patch.setattr(Daemon, "_ask_switches", self.switches)
        self.notices: list[Any] = []
        self.daemon = Daemon(ctx, policy(), Standby(ctx, print), self.look, self.notices.append, self.clock)
        self.bed = Bed(ctx.fleet.dir / "unused", cells=())
        self.bed.names, self.bed.clock = {"a": ("prefill-0", "decode-0")}, self.clock

    def switches(self) -> None:
        self.daemon.switches.held, self.daemon.switches.paused = self.held, self.paused

    def look(self) -> Observation:
        return self.bed.seen(*{f.cell for f in self.found})

    def judge(self, cells: frozenset[str], at: float) -> Verdict:
        return Verdict(cells, at, tuple(self.found), Documents("test", {"manifest.json": "{}"}))

    def act(self, fleet: Fleet, decision: Decision, terms: Terms, say: object, resumes: str) -> Outcome:
        assert list(evidence.folder(fleet).glob("*.tar.gz")), "evidence comes first"
        self.acts.append((decision, resumes))
        self.end.wait(60)
        if self.outcome is None:
            raise RuntimeError("our own fault")
        return self.outcome

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.pass_(5.0)
            self.daemon.tick()
            self.daemon.follow()

    @property
    def state(self) -> State:
        return self.daemon.ward.cases["a"].state


@pytest.fixture
def turns(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    with Context(fleet) as ctx:
        made = Turns(ctx, monkeypatch)
        yield made
        made.end.set()
        made.daemon.close()


def test_evidence_is_kept_then_it_acts_and_looks_on_meanwhile(turns: Turns) -> None:
    turns.turn()
    turns.found = [WEDGE]
    turns.turn(4)
    until(lambda: turns.acts)
    assert turns.state is State.ACTING
    turns.turn(3)
    assert len(turns.acts) == 1, "one at a time"
    turns.found = []
    turns.end.set()
    until(lambda: turns.daemon.running is None or turns.daemon.running.future.done())
    turns.turn(30)
    assert turns.state is State.SERVING
    (incident,) = turns.daemon.store.recent()
    assert not incident.open and Path(incident.evidence).is_file()
    assert [n.kind for n in turns.notices] == ["opened", "action", "closed"]


def test_without_evidence_nothing_is_done_and_a_person_is_told(turns: Turns) -> None:
    place = evidence.folder(turns.daemon.fleet)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("no folder")
    turns.found = [WEDGE]
    turns.turn(60)
    assert not turns.acts and turns.state is State.ILL
    (told,) = [n.text for n in turns.notices if n.kind == "person"]
    assert "refused 3 times" in told and "no evidence can be kept" in told and "cannot be written" in told
    assert sum("cannot be written" in said for said in turns.said) < 10, "less and less often"
    place.unlink()
    turns.turn(60)
    until(lambda: turns.acts)


def test_paused_and_held_it_looks_and_does_nothing(turns: Turns) -> None:
    turns.paused = "paused by ann@desk: new disks"
    turns.found = [WEDGE]
    turns.turn(10)
    assert not turns.acts and turns.state is State.ILL, "it is seen all the same"
    turns.held, turns.paused = "ann@desk: pdctl deploy", ""
    turns.turn(10)
    assert not turns.acts
    turns.held = ""
    turns.turn(4)
    until(lambda: turns.acts)


def test_the_switches_are_those_of_the_control_host(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "SWITCHES", 0.0)
    said: list[str] = []
    with Context(fleet, say=said.append) as ctx:
        lease = Standby(ctx, said.append)
        made = Daemon(ctx, policy(), lease, Observation, said.append)  # type: ignore[arg-type]
        made._ask_switches()
        assert not made._may_act(), "the lease is not ours"
        assert lease.acquire()
        made._ask_switches()
        assert made._may_act()
        pause_of(ctx).pause("ann@desk", "new disks", None)
        fleet_lock(ctx).take(holder_for(ELSEWHERE, "hand", "pdctl lock take", reason="racks"))
        made._ask_switches()
        assert not made._may_act() and "racks" in made.switches.held and "disks" in made.switches.paused
        pause_of(ctx).resume()
        fleet_lock(ctx).release("hand")
        made._ask_switches()
        assert made._may_act()
        assert said[-3:] == [
            "no longer held",
            "no longer paused",
            "resumed by a person: what was given up may be tried again",
        ]
        lease_of(ctx).release(str(lease_of(ctx).look().id))  # type: ignore[union-attr]
        assert lease._lease is not None
        lease._lease.beat()
        made._ask_switches()
        assert not made._may_act(), "somebody took it"
        made.close()


def test_an_act_that_breaks_by_our_own_fault_is_a_failed_act(turns: Turns) -> None:
    turns.outcome = None
    turns.end.set()
    turns.found = [WEDGE]
    turns.turn(3)
    until(lambda: turns.acts)
    until(lambda: turns.turn() or turns.daemon.running is None)
    (action,) = turns.daemon.store.actions()
    assert (action.outcome, action.detail) == ("failed", "RuntimeError: our own fault")


def test_a_successor_goes_on_with_what_died_half_way(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    run = died(fleet)
    with Context(fleet) as ctx:
        made = Turns(ctx, monkeypatch)
        held = {"admission": "held", "hold_age": 9.0}
        monkeypatch.setattr(made.daemon, "_look", lambda: _held(made.look(), held))
        made.turn()
        until(lambda: made.acts)
        ((decision, resumes),) = made.acts
        assert (decision.act, decision.target, decision.proof, resumes) == (Act.CO_RESTART, "a", False, run)
        made.end.set()
        made.daemon.close()


def test_whoever_only_watches_leaves_what_died_half_way_to_a_person(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(fleet)
    with Context(fleet) as ctx:
        made = Turns(ctx, monkeypatch)
        made.daemon.ward.reform(policy(supervisor={"mode": "watch"}))
        held = {"admission": "held", "hold_age": 9.0}
        monkeypatch.setattr(made.daemon, "_look", lambda: _held(made.look(), held))
        made.turn(3)
        assert not made.acts and made.state is State.PERSON
        assert [n.kind for n in made.notices] == ["opened", "person"]
        made.daemon.close()


@pytest.mark.parametrize("unit", ["decode-0", "router"])
def test_a_unit_that_was_stopped_and_not_started_again_is_restarted(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    """Its keeper takes the stop for a wish: nobody else would start it."""
    run = died(fleet, words=(unit,))
    with Context(fleet) as ctx:
        made = Turns(ctx, monkeypatch)
        gone = {unit.replace("-", "_"): {"reach": Reach.REFUSED, "ready": False}} if unit != "router" else {}
        front = replace(made.look().router, reach=Reach.REFUSED)  # type: ignore[type-var]
        more = gone or {"router": front}
        monkeypatch.setattr(made.daemon, "_look", lambda: made.bed.seen(**more))
        made.turn()
        until(lambda: made.acts)
        ((decision, resumes),) = made.acts
        assert (decision.act, decision.target, resumes) == (Act.RESTART, unit, run)
        made.end.set()
        made.daemon.close()


def test_a_unit_whose_restart_was_cut_off_and_that_serves_is_left_alone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(fleet, words=("decode-0",))
    with Context(fleet) as ctx:
        made = Turns(ctx, monkeypatch)
        made.turn(10)
        assert not made.acts and any("decode-0 serves: left as it is" in s for s in made.said)
        made.daemon.close()


def _held(seen: Observation, fields: dict[str, Any]) -> Observation:
    assert seen.router is not None
    return replace(seen, router=replace(seen.router, **fields))


def test_what_died_half_way_is_left_where_the_cell_serves(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(fleet)
    with Context(fleet) as ctx:
        made = Turns(ctx, monkeypatch)
        made.turn(10)
        assert not made.acts and made.state is State.SERVING
        assert any("left as it is" in s for s in made.said)
        made.daemon.close()


def test_evidence_is_bounded_and_the_newest_stays(fleet: Fleet) -> None:
    folder = evidence.folder(fleet)
    for n in range(8):
        path = evidence.keep(fleet, Documents("t", {"a": "x"}), n, most=3, megabytes=1)
        os.utime(path, (n, n))
    assert sorted(p.name[:10] for p in folder.glob("*")) == ["incident-5", "incident-6", "incident-7"]
    big = Documents("t", {"a": os.urandom(3 << 20).hex()})
    path = evidence.keep(fleet, big, 9, most=3, megabytes=1)
    assert list(folder.glob("*")) == [path]


def test_the_process_says_that_it_is_ready_feeds_its_watchdog_and_keeps_its_policy_on_error(
    fleet: Fleet,
) -> None:
    socket, log, folder = NotifySocket(), fleet.dir / "log", fleet.dir
    heard: list[tuple[str, str]] = []

    def hears(key: str, value: str = "1") -> bool:
        heard.extend(socket.read())
        return (key, value) in heard

    def feeds() -> int:
        hears("WATCHDOG")
        return heard.count(("WATCHDOG", "1"))

    rows = 'schema = 1\n[supervisor]\nlook_every = 2.0\npage = ""\n'
    (folder / "policy.toml").write_text(rows)
    argv = [sys.executable, "-m", "pdctl", "--fleet", str(folder), "supervise"]
    with open(log, "wb") as out:
        env = os.environ | {"NOTIFY_SOCKET": socket.path}
        run = subprocess.Popen(argv, stdout=out, stderr=out, env=env)
    try:
        until(lambda: hears("READY") and hears("WATCHDOG"))
        (folder / "policy.toml").write_text(rows + 'mode = "acts"\n')
        run.send_signal(signal.SIGHUP)
        until(lambda: "goes on with what it had" in log.read_text())
        assert f"{folder}/policy.toml:5: supervisor.mode: must be one of" in log.read_text()
        fed = feeds()
        until(lambda: feeds() > fed + 1)  # another turn began: what is said of this one was
        assert "read its policy again" not in log.read_text()
        (folder / "policy.toml").write_text(rows + 'mode = "watch"\n')
        run.send_signal(signal.SIGHUP)
        until(lambda: "read its policy again" in log.read_text())
        # What the observer was begun with is taken in too.
        (folder / "policy.toml").write_text(rows + 'mode = "watch"\nhosts_every = 7.0\n')
        run.send_signal(signal.SIGHUP)
        until(lambda: "begins again with them" in log.read_text())
        until(lambda: log.read_text().count("looks after test: 2 engines, mode watch") == 1)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0, log.read_text()
        assert hears("STOPPING")
    finally:
        run.kill()
        run.wait()
        socket.close()


def test_one_that_loses_its_lease_keeps_the_policy_that_it_was_told_to_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that may only watch would act again."""
    lost, said, rows = threading.Event(), list[str](), 'schema = 1\n[supervisor]\npage = ""\n'

    class Losing(Standby):
        @property
        def ours(self) -> bool:
            return super().ours and not lost.is_set()

    monkeypatch.setattr(service_module, "Standby", Losing)
    monkeypatch.setattr(daemon_module, "SWITCHES", 0.0)
    fleet.paths.policy.write_text(rows)
    service = Service(lambda: fleet, said.append, lambda _: None)
    running = begin(service.run)
    until(lambda: any("mode act" in s for s in said))
    fleet.paths.policy.write_text(rows + 'mode = "watch"\nlook_every = 5.0\n')
    service.again.set()
    until(lambda: "read its policy again" in said)
    lost.set()
    until(lambda: "has lost its lease: stands by" in said)
    lost.clear()
    until(lambda: any("mode watch" in s for s in said))
    service.stop.set()
    running.result(60)
    assert sum("mode act" in s for s in said) == 1


def test_a_turn_that_breaks_off_is_said_once_feeds_nothing_and_the_next_one_goes_on(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    told: list[str] = []
    service = Service(lambda: turns.daemon.fleet, said.append, told.append)
    record: Any = SimpleNamespace(live=SimpleNamespace(standing=None))
    broken = [True]

    def look() -> Observation:
        if broken[0]:
            raise ConfigError("history", "the disk is full.")
        return turns.look()

    monkeypatch.setattr(turns.daemon, "_look", look)
    for _ in range(3):
        service._turn(turns.daemon, record, turns.daemon.tick)
    assert said == ["this turn broke off: the disk is full."] and told == []
    broken[0] = False
    service._turn(turns.daemon, record, turns.daemon.tick)
    assert told and told[0].startswith("WATCHDOG=1\nSTATUS=")


def test_one_that_stands_by_says_so_writes_nothing_and_leaves_when_told(fleet: Fleet) -> None:
    told: list[str] = []
    service = Service(lambda: fleet, print, told.append)
    with Context(fleet) as ctx:
        lease_of(ctx).take(holder_for(ELSEWHERE, "theirs", "pdctl supervise"))
        running = begin(service.run)
        until(lambda: told)
        assert told[0].startswith("READY=1\nWATCHDOG=1\nSTATUS=stands by: ann@elsewhere")
        service.stop.set()
        running.result(60)
        assert not fleet.paths.supervisor.exists()
        holder = lease_of(ctx).look()
        assert holder is not None and holder.id == "theirs"
