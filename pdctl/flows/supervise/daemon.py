"""The supervisor's loop: look, judge, decide, act; one act at a time, and the looking goes on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from pdctl.bundle.documents import Documents
from pdctl.errors import PdctlError
from pdctl.fleet.model import Engine, Fleet
from pdctl.flows.changing import fleet_lock
from pdctl.flows.context import Context
from pdctl.flows.foreign import mixed
from pdctl.flows.supervise import evidence
from pdctl.flows.supervise.act import NOTE, Outcome, Terms, act
from pdctl.flows.supervise.judging import Judging
from pdctl.flows.supervise.switch import Standby, pause_of
from pdctl.remote.fanout import begin
from pdctl.remote.journal_read import list_runs, read_run
from pdctl.supervisor.case import Case
from pdctl.supervisor.clock import Clock, SystemClock
from pdctl.supervisor.decide import Decision
from pdctl.supervisor.incidents import Incidents
from pdctl.supervisor.judge import FRONT
from pdctl.supervisor.live import Standing
from pdctl.supervisor.observation import Observation
from pdctl.supervisor.policy import Act, PolicyFile
from pdctl.supervisor.states import State
from pdctl.supervisor.ward import Notice, Roster, Ward

# A look at the switches on the control host when nothing is wrong, seconds.
SWITCHES = 30.0
# So many bundles are in memory, megabytes each; cells that were looked at together share one.
BUNDLES = 8


def roster(fleet: Fleet) -> Roster:
    """What the supervisor looks after, as the fleet file has it."""
    cells = {name: tuple(e.name for e in cell.engines) for name, cell in fleet.cells.items()}
    roles = {unit.name: unit.role for unit in fleet.units()}
    paired = {name for name, cell in fleet.cells.items() if mixed(cell) or _legacy(cell.engines)}
    # What such a cell keeps of a dead life outlasts a link, and other kinds have no verb for it.
    return Roster(cells, roles, frozenset(paired), frozenset(cells) - paired)


def _legacy(engines: tuple[Engine, ...]) -> bool:
    return any(e.spec.legacy_bootstrap for e in engines)


@dataclass
class Switches:
    """What the control host says: who holds the fleet, who paused us, whether the lease is ours."""

    held: str = ""
    paused: str = ""
    attended: str | None = None
    standby: bool = False
    asked: float = float("-inf")


@dataclass(frozen=True)
class Running:
    """The act under way."""

    case: Case
    decision: Decision
    action: int
    future: Future[Outcome]


class Daemon:
    """`look` gives one observation, `tell` takes notices. `lease` is ours, as long as it can be proved.

    `tick` is one turn of the loop.
    """

    def __init__(
        self,
        ctx: Context,
        policy: PolicyFile,
        lease: Standby,
        look: Callable[[], Observation],
        tell: Callable[[Notice], None],
        clock: Clock | None = None,
    ) -> None:
        self.ctx, self.fleet, self.say = ctx, ctx.fleet, ctx.say
        self._look, self._tell = look, tell
        self.clock = clock or SystemClock()
        self.store = Incidents(self.fleet.paths.supervisor)
        self.ward = Ward(roster(self.fleet), policy, self.clock, self.store)
        self.lease = lease
        self.switches = Switches()
        self.running: Running | None = None
        self.seen: Observation | None = None
        self.judging = Judging(self.fleet, self.clock)
        self._bundles: dict[str, Documents] = {}
        self._half = half_way(self.fleet)
        self._resumes: Case | None = None

    @property
    def policy(self) -> PolicyFile:
        return self.ward.policy

    def tick(self) -> None:
        """One look and what follows from it. Errors of the fleet are findings, not errors."""
        self._settle_running()
        self.seen = self._look()
        self._ask_switches()
        held = "" if self.running else self.switches.held
        wanted = self.ward.look(self.seen, held)
        if held:
            self.judging.forget()
        self.judging.want(wanted)
        self.follow()

    def follow(self) -> None:
        """Take in a verdict that is there, and what follows from it; also between two looks."""
        self._settle_running()
        judged = self._hear()
        self._keep_urgent()
        if self.running is None and self._may_act():
            if self._half is not None:
                self._go_on(self._half)
            elif judged:
                for case, decision in self.ward.decide(judged):
                    if self._begin(case, decision):
                        break
        self._keep_urgent()
        notices, self.ward.notices = self.ward.notices, []
        for notice in notices:
            self.say(f"{notice.kind}: incident {notice.incident}, {notice.cell or 'fleet'}: {notice.text}")
            self._tell(notice)

    def _keep_urgent(self) -> None:
        urgent, self.ward.urgent = self.ward.urgent, []
        for case in urgent:
            self._keep(case)

    # switches

    def _ask_switches(self) -> None:
        """Every look while anything is wrong, else now and then: it costs a process on the control host."""
        now, s = self.clock.now(), self.switches
        calm = all(c.state in (State.SERVING, State.UNKNOWN) for c in self.ward.cases.values())
        if calm and now - s.asked < SWITCHES:
            return
        try:
            holder = None if self.running else fleet_lock(self.ctx).look()
            pause, attended = pause_of(self.ctx).look()
        except PdctlError as error:
            self._switch("held", f"the control host cannot be asked: {error.message}")
            return
        s.asked = now
        busy = holder is not None and not holder.stale
        self._switch("held", holder.words() if busy and holder is not None else "")
        self._switch("paused", pause.words() if pause is not None else "")
        if s.attended is not None and attended != s.attended:
            self.say("resumed by a person: what was given up may be tried again")
            self.ward.attended()
        s.attended = attended
        s.standby = not self.lease.ours

    def _switch(self, which: str, text: str) -> None:
        """A text that changes with time (ages) is said once."""
        was = getattr(self.switches, which)
        if bool(was) is not bool(text):
            self.say(f"{which}: {text}" if text else f"no longer {which}")
        setattr(self.switches, which, text)

    def _may_act(self) -> bool:
        s = self.switches
        return not (s.held or s.paused or s.standby)

    # judging

    def _hear(self) -> frozenset[str]:
        """The cells of a verdict that has come in: what is decided now is decided by it."""
        verdict = self.judging.turn()
        if verdict is None:
            return frozenset()
        for cell in verdict.cells:
            self.ward.judged(cell, verdict.of(cell), verdict.at)
            self._bundles.pop(cell, None)
            if verdict.of(cell) or self.ward.cases[cell].incident is not None:
                self._bundles[cell] = verdict.documents
        while len({id(bundle) for bundle in self._bundles.values()}) > BUNDLES:
            self._bundles.pop(next(iter(self._bundles)))
        return verdict.cells

    def _keep(self, case: Case) -> str:
        """The bundle that the case was judged by, as evidence; why it could not be kept, "" when it was."""
        documents = self._bundles.get(case.cell)
        if documents is None or case.incident is None:
            return "there is no bundle of it"
        p = self.policy.supervisor
        try:
            path = evidence.keep(self.fleet, documents, case.incident, p.evidence, p.evidence_mb)
        except PdctlError as error:
            self.say(error.message)
            return error.message
        self.ward.kept(case, str(path))
        return ""

    # acting

    def _go_on(self, half: HalfWay) -> None:
        """Finish what a supervisor began that was killed, unless what it restarted serves all the same.

        Once its cell was judged: evidence comes first here too.
        """
        if self._resumes is None:
            if half.cell not in self.ward.cases or self._whole(half):
                died = f"run {half.run} of an earlier supervisor died"
                self.say(f"{died}, and {half.named} serves: left as it is")
                self._half = None
                return
            self.say(half.why)
            self._resumes = self.ward.half_way(half.cell, half.target, half.why)
            self._bundles.pop(half.cell, None)
        case = self._resumes
        if case.cell not in self._bundles:
            self.judging.want({case.cell})
            return
        self._half = None
        if self.policy.supervisor.mode == "watch" or self.ward.spent(case, half.act, half.target):
            return  # what is decided next ends in "needs a person"
        code = next((s.seen.code for s in case.standing.values()), "PD201")
        self._begin(case, Decision(half.act, half.target, half.cell, code, half.target, half.why), half.run)

    def _whole(self, half: HalfWay) -> bool:
        if half.act is Act.CO_RESTART:
            return self.ward.mended(half.cell)
        seen = self.seen
        front = seen.router if seen else None
        if front is not None and half.target == front.name:
            return front.answered
        return any(e.name == half.target and e.answered and e.ready for e in (seen.engines if seen else ()))

    def _begin(self, case: Case, decision: Decision, resumes: str = "") -> bool:
        """Whether it was begun, or said in a dry run. Evidence first: without it nothing is done."""
        if why := self._keep(case):
            self.ward.barred(case, f"{decision.words}: no evidence can be kept: {why}")
            return False
        if self.policy.supervisor.mode == "dry-run":
            self.ward.rehearsed(case, decision)
            self.say(f"dry run: would {decision.words}: {decision.why}")
            return True
        action = self.ward.began(case, decision)
        self.say(f"{decision.words}: {decision.why}")
        terms = Terms(
            incident=case.incident or 0,
            others=self.ward.healthy(case.cell),
            canary=self.policy.supervisor.canary,
            lease=self.lease.check,
        )
        future = begin(lambda: act(self.fleet, decision, terms, self.say, resumes))
        self.running = Running(case, decision, action, future)
        return True

    def _settle_running(self) -> None:
        running = self.running
        if running is None or not running.future.done():
            return
        self.running = None
        try:
            outcome = running.future.result()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the supervisor half way
            outcome = Outcome("failed", f"{type(error).__name__}: {error}")
        self.say(f"{running.decision.words}: {outcome.outcome}: {outcome.detail}")
        self.ward.ended(running.case, running.action, running.decision, outcome.outcome, outcome.detail)

    def close(self, wait: Callable[[], None] = lambda: None) -> None:
        """Let the act under way end; `wait` is called meanwhile."""
        while self.running is not None and not self.running.future.done():
            wait()
            threading.Event().wait(0.2)
        self._settle_running()
        self.store.close_file()


@dataclass(frozen=True)
class HalfWay:
    """A restart that a supervisor did not live to end: the run, of what, its cell, its last step."""

    run: str
    act: Act
    target: str
    cell: str
    step: str

    @property
    def named(self) -> str:
        return f"cell {self.cell}" if self.act is Act.CO_RESTART else self.target

    @property
    def why(self) -> str:
        return f"run {self.run} of an earlier supervisor died half way: {self.step}"


def half_way(fleet: Fleet) -> HalfWay | None:
    """The newest run of this machine's journal, when it is such a one; whoever came after has seen to it."""
    runs = [r for r in list_runs(fleet.paths.journal, 20) if not r.command.startswith("abort ")]
    if not runs or runs[0].state not in ("died", "interrupted") or runs[0].again[:1] != ("restart",):
        return None
    run = read_run(fleet.paths.journal, runs[0].id)
    if all(note.what != NOTE for note in run.notes):
        return None
    step = run.steps[-1].what if run.steps else "nothing was begun"
    if run.again[1] == "--co":
        return HalfWay(run.id, Act.CO_RESTART, run.again[2], run.again[2], step)
    cells = {e.name: e.cell for e in fleet.engines()} | {fleet.router.name: FRONT}
    target = run.again[1]
    return HalfWay(run.id, Act.RESTART, target, cells[target], step) if target in cells else None


def summary(daemon: Daemon) -> Standing:
    """What it does now, for the pages and the service manager."""
    s, running = daemon.switches, daemon.running
    waits = s.held and f"the fleet is held by {s.held}"
    if not waits and s.standby:
        waits = "it has lost its lease"
    return Standing(
        mode=daemon.policy.supervisor.mode,
        paused=s.paused,
        waits=waits,
        acts=running.decision.words if running is not None else "",
        cells={cell: str(case.state) for cell, case in daemon.ward.cases.items() if cell != FRONT},
    )


def words(standing: Standing) -> str:
    """The same in one line."""
    states = list(standing.cells.values())
    cells = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    doing = standing.acts or standing.paused or standing.waits
    return f"{doing}; {cells}" if doing else cells
