"""All cells of a fleet as cases: what each look and each verdict changes, what is to be done, what is told.

No process, host or clock is asked here: looks and verdicts come in, decisions go out, incidents are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from pdctl.supervisor.adopt import adopt
from pdctl.supervisor.case import Case
from pdctl.supervisor.clock import Clock
from pdctl.supervisor.decide import Decision, GivesUp, Waits, World, decide
from pdctl.supervisor.incidents import Incidents, Moment
from pdctl.supervisor.judge import FRONT, Seen, away, blind, cut_off, serves, suspicions, transfers, well
from pdctl.supervisor.observation import EngineLook, Observation
from pdctl.supervisor.policy import Act, NoticeKind, PolicyFile
from pdctl.supervisor.states import MAY_ACT, RESTING, Event, Machine, State

# So many refused in a row, each wait twice the one before, is news for a person; the longest wait, seconds.
_REFUSED, _LONGEST = 3, 1800.0


@dataclass(frozen=True)
class Notice:
    """Something to tell people, once."""

    kind: NoticeKind
    incident: int
    cell: str
    codes: tuple[str, ...]
    text: str
    at: float


@dataclass(frozen=True)
class Roster:
    """What the fleet file names: cell -> its engines, engine -> role, cells whose sides restart together.

    `relinks` are cells whose engines know how to link anew, and where that helps.
    """

    cells: Mapping[str, tuple[str, ...]]
    roles: Mapping[str, str]
    pairs: frozenset[str] = frozenset()
    relinks: frozenset[str] = frozenset()


class Ward:
    """`notices` are taken by whoever sends them. `urgent` are cases that a bundle should be kept of now."""

    def __init__(self, roster: Roster, policy: PolicyFile, clock: Clock, store: Incidents) -> None:
        self.roster, self.policy, self._clock, self._store = roster, policy, clock, store
        self.cases: dict[str, Case] = {}
        self.engines: dict[str, Machine] = {}
        self.notices: list[Notice] = []
        self.urgent: list[Case] = []
        self._before: Observation | None = None
        self._deep: float | None = None
        self._moved: dict[str, float] = {}
        self._serving: dict[str, str] = {}
        for cell in (*roster.cells, FRONT):
            self.cases[cell] = Case(cell, self._machine())
        for name in roster.roles:
            self.engines[name] = self._machine()
        adopt(self.cases, store, clock)

    def _machine(self) -> Machine:
        p = self.policy.supervisor
        return Machine(p.flaps, p.flap_window)

    # looking

    def look(self, seen: Observation, held: str = "") -> Set[str]:
        """Take in one look; the cells that diagnose should look at now.

        While somebody else holds the fleet (`held`) what is wrong is their doing: nothing is judged.
        """
        now, p = self._clock.now(), self.policy.supervisor
        before, self._before = self._before, seen
        if held:
            for case in self.cases.values():
                case.unseen(now)
            return frozenset()
        self._engines(seen, now)
        if why := cut_off(seen):
            for case in self.cases.values():
                self._lost(case, why, now)
            return frozenset()
        doubts = suspicions(before, seen)
        self._movement(before, seen, now)
        every = self._deep is None or now - self._deep >= p.diagnose_every
        wanted = set()
        for cell, case in self.cases.items():
            engines = self._cells(seen).get(cell, ())
            if why := blind(engines, seen):
                self._lost(case, why, now)
            elif case.state is State.ACTING:
                continue
            elif every or cell in doubts or case.standing or case.incident is not None:
                wanted.add(cell)
            elif case.state is not State.UNKNOWN or serves(engines) or cell == FRONT:
                self._found(case, (), now)
        if every:
            self._deep = now
        return wanted

    def _cells(self, seen: Observation) -> Mapping[str, tuple[EngineLook, ...]]:
        return seen.cells()

    def _engines(self, seen: Observation, now: float) -> None:
        p = self.policy.supervisor
        self._serving = {}
        for engine in seen.engines:
            machine = self.engines.setdefault(engine.name, self._machine())
            was, well = machine.state, engine.answered and engine.ready
            machine.take(Event.WELL if well else Event.SICK, now)
            if well:
                self._serving[engine.name] = engine.role
            elif machine.state is State.SUSPECT and now - machine.since >= p.confirm_gap:
                machine.take(Event.CONFIRMED, now)
            calm = p.flap_window if machine.state is State.FLAPPING else p.calm
            if machine.calm(calm, now):
                machine.take(Event.CALM, now)
            if machine.state is not was:
                self._of_engine(engine, machine.state)

    def _of_engine(self, engine: EngineLook, state: State) -> None:
        """An engine's own way, in the timeline of its cell's incident."""
        case = self.cases.get(engine.cell)
        if case is not None and case.incident is not None:
            why = f": {engine.detail or ', '.join(engine.not_ready)}" if state is State.SUSPECT else ""
            self._store.change(case.incident, self._moment("state", f"{engine.name}: {state}{why}"))

    def _movement(self, before: Observation | None, seen: Observation, now: float) -> None:
        """Which cells have handed something over since the last look."""
        if before is None:
            return
        old = {e.name: transfers(e) for e in before.engines}
        for engine in seen.engines:
            if transfers(engine) > old.get(engine.name, 0):
                self._moved[engine.cell] = now

    def judged(self, cell: str, found: Iterable[Seen], at: float | None = None) -> None:
        """What diagnose says of a cell that `look` had asked for, by facts of `at`: what was collected before
        an act ended, or while the cell could not be judged, says nothing.
        """
        case, at = self.cases[cell], self._clock.now() if at is None else at
        if case.state is State.ACTING or at < case.facts_after:
            return
        found = list(found)
        if case.broken is not None and not self._mended(cell):
            found = [case.broken, *(f for f in found if f.key != case.broken.key)]
        self._found(case, found, at)

    def _mended(self, cell: str) -> bool:
        """As `mended`; what was half way is whole then, with or without our doing."""
        seen = self._before
        if seen is None:
            return False
        front = seen.router
        mine = set(self.roster.cells.get(cell, ()))
        shut = front is not None and (
            front.admission == "held" or any(e.cordoned for e in front.engines if e.instance in mine)
        )
        well = serves(seen.cells().get(cell, ())) and not shut
        if well:
            self.cases[cell].broken = None
        return well

    # what follows

    def _lost(self, case: Case, why: str, now: float) -> None:
        if case.lost(why, now):
            self._note(case, "state", why)

    def _found(self, case: Case, found: Iterable[Seen], now: float) -> None:
        p = self.policy.supervisor
        found = list(found)
        if case.state is State.SETTLING and found and now < case.alone_until:
            return
        was = case.state
        case.look(found, now, p.confirm_gap)
        case.confirmed(self.policy, now)
        if case.state in (State.ILL, *RESTING) and was is not case.state:
            self._open(case)
        if case.state is State.FLAPPING and was is not State.FLAPPING:
            self._person(case, f"ill and well again {p.flaps} times in {p.flap_window:g} s")
        calm = p.flap_window if case.state in RESTING else p.calm
        if case.machine.calm(calm, now) and case.machine.take(Event.CALM, now):
            self._close(case)
        elif case.incident is not None and was is not case.state:
            self._store.change(case.incident, state=case.state)

    def _open(self, case: Case) -> None:
        leads = [s.seen for s in sorted(case.standing.values(), key=lambda s: s.first)]
        codes = tuple(dict.fromkeys(s.code for s in leads))
        text = leads[0].summary if leads else str(case.state)
        if case.incident is not None:
            known = self._codes(case)
            moment = self._moment("finding", text)
            self._store.change(case.incident, moment, codes=codes, state=case.state, summary=text)
            if not set(codes) <= set(known):  # something else is wrong than what was told
                self._tell("opened", case, text)
            return
        subject = case.cell or (leads[0].subject if leads else "fleet")
        case.incident = self._store.begin(case.cell, subject, codes, case.state, text, self._clock.wall())
        self._tell("opened", case, text)

    def _close(self, case: Case) -> None:
        if case.incident is None:
            return
        acts = ", ".join(f"{d.act} {d.target}" for d in case.tried)
        text = f"well for {self.policy.supervisor.calm:g} s" + (f" after {acts}" if acts else " by itself")
        self._store.close(case.incident, State.SERVING, text, self._clock.wall())
        self._tell("closed", case, text)
        case.forget()

    def _person(self, case: Case, why: str) -> None:
        self._note(case, "state", f"{State.PERSON}: {why}")
        self.urgent.append(case)
        if case.incident is not None:
            self._store.change(case.incident, state=case.state)
        self._tell("person", case, why)

    def _tell(self, kind: NoticeKind, case: Case, text: str) -> None:
        if case.incident is not None:
            codes, at = self._codes(case), self._clock.wall()
            self.notices.append(Notice(kind, case.incident, case.cell, codes, text, at))

    def _codes(self, case: Case) -> tuple[str, ...]:
        found = self._store.one(case.incident) if case.incident is not None else None
        return found.codes if found else ()

    def _moment(self, what: str, text: str) -> Moment:
        return Moment(self._clock.wall(), what, text)

    def _note(self, case: Case, what: str, text: str) -> None:
        """Once until something else is said."""
        if case.incident is not None and case.said != text:
            case.said = text
            self._store.change(case.incident, self._moment(what, text))

    # acting

    def decide(self, cells: Set[str] | None = None) -> list[tuple[Case, Decision]]:
        """What is due now, at most one act a cell; of `cells` alone, whose verdicts are of this moment."""
        now = self._clock.now()
        due = []
        for case in self.cases.values() if cells is None else [self.cases[c] for c in sorted(cells)]:
            if case.state is State.FLAPPING and self._stands(case):
                case.machine.take(Event.GAVE_UP, now)
                self._person(case, "it is ill again and again, and ill now")
            if case.state not in MAY_ACT:
                continue
            what = decide(case, self.policy, self._world(case, now))
            if isinstance(what, Decision):
                if what.words not in case.would:  # a dry run says it once an incident
                    due.append((case, what))
            elif isinstance(what, Waits):
                self._note(case, "note", what.why)
            elif isinstance(what, GivesUp):
                case.machine.take(Event.GAVE_UP, now)
                self._person(case, what.why)
        return due

    def _stands(self, case: Case) -> bool:
        return any(s.age >= self.policy.supervisor.person_after for s in case.standing.values())

    def _world(self, case: Case, now: float) -> World:
        serving = (c for c, other in self.cases.items() if other.state is State.SERVING and c != FRONT)
        moved = self._moved.get(case.cell)
        mine = self._before.cells().get(case.cell, ()) if self._before else ()
        return World(
            now=now,
            wall=self._clock.wall(),
            healthy=frozenset(c for c in serving if c != case.cell),
            partial=moved is not None and now - moved < 3 * self.policy.supervisor.look_every,
            units=self._serving,
            roles=self.roster.roles,
            pairs=self.roster.pairs,
            well=well(mine) if case.cell in self.roster.relinks else frozenset(),
            away=away(mine, self._before.hosts if self._before else ()),
        )

    def healthy(self, but: str) -> frozenset[str]:
        return self._world(self.cases[but], self._clock.now()).healthy

    def began(self, case: Case, decision: Decision) -> int:
        """Note that it begins; the action's id."""
        case.begin(decision.act, decision.target, self._clock.now())
        id = self._act(case, decision, "running")
        self._note(case, "action", f"{decision.words}: {decision.why}")
        if case.incident is not None:
            self._store.change(case.incident, state=case.state)
        return id

    def rehearsed(self, case: Case, decision: Decision) -> None:
        """A dry run: what would have been done. The cell is as ill as before, and no try is used up."""
        case.would.add(decision.words)
        self._act(case, decision, "dry-run")
        text = f"would {decision.words}: {decision.why}"
        self._note(case, "action", text)
        self._tell("action", case, text)

    def _act(self, case: Case, decision: Decision, outcome: str) -> int:
        at = self._clock.wall()
        return self._store.act(case.incident, decision.act, decision.target, outcome, decision.why, at)

    def ended(self, case: Case, id: int, decision: Decision, outcome: str, detail: str) -> None:
        """What came of it: done, failed, or refused, which counts as no try."""
        now = self._clock.now()
        case.machine.take(Event.ENDED, now)
        case.facts_after = now
        self._store.ended(id, outcome, detail)
        self._note(case, "action", f"{decision.words}: {outcome}: {detail}")
        if case.incident is not None:
            self._store.change(case.incident, state=case.state)
        if outcome == "refused":
            case.tried.pop()
            case.done.pop()
            self._refused(case, f"{decision.words}: {detail}", now)
            return
        case.refused = 0
        if decision.act is not Act.RELINK or outcome == "done":  # else all is as it was
            case.standing, case.alone_until = {}, now + self.policy.supervisor.settle
        self._tell("action", case, f"{decision.words}: {outcome}: {detail}")
        if decision.act is Act.CO_RESTART:
            half = Seen(
                decision.code,
                decision.subject,
                case.cell,
                decision.touches,
                f"the co-restart stopped: {detail}",
            )
            case.broken = half if outcome == "failed" else None

    def barred(self, case: Case, why: str) -> None:
        """What was decided is not begun."""
        self._note(case, "note", why)
        self._refused(case, why, self._clock.now())

    def _refused(self, case: Case, why: str, now: float) -> None:
        """Nothing was done; the finding may stand for hours, and each look at it costs the cell a canary."""
        case.refused += 1
        wait = min(self.policy.supervisor.settle * 2.0 ** (case.refused - 1), _LONGEST)
        case.not_before = now + wait
        if case.refused == _REFUSED:
            self._tell("person", case, f"refused {_REFUSED} times, tried again less and less often: {why}")

    def spent(self, case: Case, act: Act, target: str) -> bool:
        """Whether it has had all tries of `act` that one incident gets."""
        return len(case.tries(act, target)) >= self.policy.actions[act.value].tries

    def half_way(self, cell: str, target: str, why: str) -> Case:
        """An act of an earlier supervisor stopped half way: its cell is ill, whatever it looks like. A cell
        that was to be restarted as a whole stays so until it serves.
        """
        case, now = self.cases[cell], self._clock.now()
        known = self._codes(case)
        found = Seen(known[0] if known else "PD201", target, cell, frozenset({target}), why)
        case.broken = found if target == cell else None
        case.look([found], now, self.policy.supervisor.confirm_gap)
        case.machine.take(Event.CONFIRMED, now)
        self._open(case)
        return case

    def mended(self, cell: str) -> bool:
        """Whether the cell serves, as the newest look has it: ready engines that nothing holds back."""
        return self._mended(cell)

    def kept(self, case: Case, path: str) -> None:
        """A bundle was kept for it."""
        if case.incident is not None:
            self._store.change(case.incident, self._moment("note", f"evidence: {path}"), evidence=path)

    def attended(self, by: str = "") -> None:
        """A person has looked after the fleet: what was given up may be tried again."""
        for case in self.cases.values():
            case.tried, case.not_before = [], 0.0
            if case.machine.take(Event.ATTENDED, self._clock.now()):
                self._note(case, "state", f"{Event.ATTENDED}{': ' + by if by else ''}")
                if case.incident is not None:
                    self._store.change(case.incident, state=case.state)

    def reform(self, policy: PolicyFile) -> None:
        """Another policy from now on; what was seen and done stays."""
        self.policy = policy
        for case in self.cases.values():
            case.would.clear()
        for machine in (*(c.machine for c in self.cases.values()), *self.engines.values()):
            machine.flaps, machine.window = policy.supervisor.flaps, policy.supervisor.flap_window
