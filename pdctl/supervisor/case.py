"""One cell under the supervisor's eyes: which findings it has and since when, what was done about them; pure.

Durations are monotonic. A finding is confirmed by judgements that follow one another: of the time between two
of them no more counts than `confirm_gap`, so that one that stands for long is one that was seen often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pdctl.supervisor.judge import Seen
from pdctl.supervisor.policy import Act, PolicyFile
from pdctl.supervisor.states import Event, Machine, State

HOUR = 3600.0


@dataclass
class Standing:
    """A finding that was there in every judgement from `first` to `last`; `age` counts of that time."""

    seen: Seen
    first: float
    last: float
    age: float = 0.0

    def again(self, seen: Seen, now: float, gap: float) -> Standing:
        return Standing(seen, self.first, now, self.age + min(max(0.0, now - self.last), gap))


@dataclass(frozen=True)
class Done:
    """An action that was begun: by what, on whom, when."""

    act: Act
    target: str
    at: float


@dataclass
class Case:
    """`cell` is "" for what belongs to no cell. `incident` is the open incident's id, None while well.

    `done` are the actions of the last hour, `tried` those of the present incident, `would` what a dry
    run has said of it, `refused` how many tries in a row were refused. Nothing is begun before `not_before`,
    and what shows before `alone_until` is still of the last action. `broken` is why the last co-restart
    stopped half way, with what it was done for. Facts from before `facts_after` are of another time.
    """

    cell: str
    machine: Machine
    standing: dict[tuple[str, str], Standing] = field(default_factory=dict)
    incident: int | None = None
    done: list[Done] = field(default_factory=list)
    tried: list[Done] = field(default_factory=list)
    would: set[str] = field(default_factory=set)
    refused: int = 0
    blind: str = ""
    said: str = ""
    not_before: float = 0.0
    alone_until: float = 0.0
    facts_after: float = 0.0
    broken: Seen | None = None

    @property
    def state(self) -> State:
        return self.machine.state

    def look(self, found: Iterable[Seen], now: float, gap: float) -> bool:
        """The findings of one judgement; of the time since the last, `gap` counts at the most. Whether the
        state changed.
        """
        fresh: dict[tuple[str, str], Standing] = {}
        for seen in found:
            was = self.standing.get(seen.key)
            fresh[seen.key] = was.again(seen, now, gap) if was else Standing(seen, now, now)
        self.standing, self.blind = fresh, ""
        return self.machine.take(Event.SICK if fresh else Event.WELL, now)

    def lost(self, why: str, now: float) -> bool:
        """It cannot be judged now; whether that is news."""
        self.standing, self.blind, self.facts_after = {}, why, now
        return self.machine.take(Event.BLINDED, now)

    def unseen(self, now: float) -> None:
        """What is seen now says nothing."""
        self.standing, self.facts_after = {}, now
        self.machine.unseen()

    def confirmed(self, policy: PolicyFile, now: float) -> bool:
        """Whether a finding has stood long enough for anything to follow; whether that is news."""
        if not any(s.age >= _first(policy, s.seen.code) for s in self.standing.values()):
            return False
        return self.machine.take(Event.CONFIRMED, now)

    def begin(self, act: Act, target: str, now: float) -> None:
        done = Done(act, target, now)
        self.done = [d for d in self.done if now - d.at < HOUR] + [done]
        self.tried.append(done)
        self.machine.take(Event.BEGAN, now)

    def forget(self) -> None:
        """The incident is over."""
        self.incident, self.tried, self.said, self.broken = None, [], "", None
        self.would.clear()
        self.refused = 0

    def tries(self, act: Act, target: str) -> list[Done]:
        return [d for d in self.tried if (d.act, d.target) == (act, target)]

    def last_hour(self, act: Act, target: str, now: float) -> int:
        return sum((d.act, d.target) == (act, target) and now - d.at < HOUR for d in self.done)


def _first(policy: PolicyFile, code: str) -> float:
    """How old a finding must be before anything follows from it."""
    rungs = policy.rungs(code)
    return min((rung.after for _, rung in rungs), default=policy.supervisor.person_after)
