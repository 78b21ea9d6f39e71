"""What to do about one cell now, by policy; pure.

The mildest action that is allowed and due comes first. Nothing is done that would take the last healthy cell
out of service; what cannot be done by itself ends in "needs a person".
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from pdctl.supervisor.case import Case, Standing
from pdctl.supervisor.judge import FRONT
from pdctl.supervisor.policy import Act, PolicyFile, Rung
from pdctl.supervisor.states import MAY_ACT


@dataclass(frozen=True)
class World:
    """What else counts. `healthy` are the other cells that serve, `partial` says that this one still serves
    over some edge, `units` is engine -> role of the fleet's engines that serve. `pairs` are cells whose sides
    must not be restarted alone, `well` engines that are well but for their links, and know how to link anew.
    `away` is why a host of this one cannot be asked. `now` is monotonic, `wall` Unix seconds.
    """

    now: float
    wall: float
    healthy: frozenset[str] = frozenset()
    partial: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    pairs: Set[str] = frozenset()
    well: Set[str] = frozenset()
    away: str = ""


@dataclass(frozen=True)
class Decision:
    """Do this. `request` is the id that an abort ends. `proof`: only once the wedge is proven."""

    act: Act
    target: str
    cell: str
    code: str
    subject: str
    why: str
    proof: bool = False
    request: str = ""
    touches: frozenset[str] = frozenset()

    @property
    def words(self) -> str:
        what = f"{self.act} {self.target}"
        return f"{what} ({self.request})" if self.request else what


@dataclass(frozen=True)
class Waits:
    """Nothing yet: `why`, in words."""

    why: str


@dataclass(frozen=True)
class GivesUp:
    """Nothing that the policy allows is left: a person is needed."""

    why: str


def decide(case: Case, policy: PolicyFile, world: World) -> Decision | Waits | GivesUp | None:
    """None where there is nothing to decide: the cell is not ill, or something is under way."""
    if case.state not in MAY_ACT or not case.standing:
        return None
    if policy.supervisor.mode == "watch":
        return GivesUp("the policy's mode is watch")
    if world.now < case.not_before:
        return Waits("it waits after a try that was refused")
    waits: list[str] = []
    ends: list[str] = []
    for standing in sorted(case.standing.values(), key=lambda s: s.first):
        found = _about(case, policy, world, standing)
        if isinstance(found, Decision):
            return found
        (waits if isinstance(found, Waits) else ends).append(found.why)
    if waits:
        return Waits("; ".join(dict.fromkeys(waits)))
    return GivesUp("; ".join(dict.fromkeys(ends)))


def _about(case: Case, policy: PolicyFile, world: World, standing: Standing) -> Decision | Waits | GivesUp:
    seen = standing.seen
    rungs = policy.rungs(seen.code)
    if not rungs:
        if standing.age < policy.supervisor.person_after:
            return Waits(f"{seen.code} is looked at")
        return GivesUp(f"the policy allows no action for {seen.code}")
    waits: list[str] = []
    ends: list[str] = []
    for act, rung in rungs:
        found = _rung(case, policy, world, standing, act, rung)
        if isinstance(found, Decision):
            return found
        (waits if isinstance(found, Waits) else ends).append(found.why)
    return Waits("; ".join(waits)) if waits else GivesUp("; ".join(ends))


def _rung(
    case: Case, policy: PolicyFile, world: World, standing: Standing, act: Act, rung: Rung
) -> Decision | Waits | GivesUp:
    seen = standing.seen
    if standing.age < rung.after:
        return Waits(f"{act} for {seen.code} after {rung.after:g} s")
    proof = policy.needs_proof(act, rung)
    act, target, request = _aim(case, world, standing, act)
    if not target:
        return GivesUp(f"{act} has nothing to act on for {seen.code}")
    if not seen.certain and not proof:
        return GivesUp(f"{seen.code} is not certain of its cause")
    if world.away and act in (Act.RESTART, Act.CO_RESTART):
        return Waits(f"{act} of {target} waits for its hosts: {world.away}")
    if act is Act.RELINK and not seen.touches <= world.well:
        return GivesUp(f"an end of {target} is not well, or cannot link anew")
    if why := _spares(case, world, act, target):
        late = standing.age >= rung.after + policy.supervisor.person_after
        return GivesUp(why) if late else Waits(why)
    limited = _limited(case, policy, world, act, target)
    if limited is not None:
        return limited
    why = f"{seen.code} {seen.subject} for {standing.age:.0f} s: {seen.summary}"
    return Decision(act, target, case.cell, seen.code, seen.subject, why, proof, request, seen.touches)


def _aim(case: Case, world: World, standing: Standing, act: Act) -> tuple[Act, str, str]:
    """(what, whom, request). A side that must not be restarted alone is restarted with its cell."""
    seen = standing.seen
    if act is Act.ABORT:
        return act, seen.subject if seen.requests else "", seen.requests[0] if seen.requests else ""
    if act is Act.CO_RESTART:
        return act, case.cell, ""
    if act is Act.RELINK:
        ends = {world.roles.get(name) for name in seen.touches}
        return act, seen.subject if ends == {"prefill", "decode"} and len(seen.touches) == 2 else "", ""
    if act is Act.RESTART and case.cell in world.pairs and case.cell != FRONT:
        return Act.CO_RESTART, case.cell, ""
    return act, seen.subject if seen.subject in world.roles else "", ""


def _spares(case: Case, world: World, act: Act, target: str) -> str:
    """Why this would take away the last that serves, "" when it would not."""
    if act is Act.CO_RESTART and world.partial and not world.healthy:
        return f"cell {case.cell} still serves in part, and no other cell is healthy"
    if act is Act.CORDON:
        role = world.roles.get(target, "")
        if not any(r == role for name, r in world.units.items() if name != target):
            return f"{target} is the only {role} that there is to serve"
    return ""


def _limited(case: Case, policy: PolicyFile, world: World, act: Act, target: str) -> Waits | GivesUp | None:
    limits = policy.actions[act.value]
    tried = case.tries(act, target)
    if len(tried) >= limits.tries:
        times = "once" if len(tried) == 1 else f"{len(tried)} times"
        return GivesUp(f"{act} of {target} was done {times} and did not make it well")
    if case.last_hour(act, target, world.now) >= limits.per_hour:
        return Waits(f"{act} of {target} was done {limits.per_hour} times within the hour")
    if tried and world.now - tried[-1].at < limits.pause(len(tried)):
        return Waits(f"{act} of {target} waits {limits.pause(len(tried)):g} s since the last")
    if hours := policy.quiet_now(act, world.wall):
        return Waits(f"{act} of {target} waits for the end of quiet hours {hours!r}")
    return None
