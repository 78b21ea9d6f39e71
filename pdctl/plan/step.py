"""A step knows what it would change and how; a plan is the steps that would change something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.remote.journal import Journal


@dataclass(frozen=True)
class Step:
    """`check` returns what differs from what is wanted, a line each; nothing when it holds already.

    A gate waits, proves or keeps a record and changes nothing that serves: it runs in a plan that changes
    something, or whose gate itself says that it is needed. `group` is what stands or falls together with
    this step. Neighbours of one `wave` depend on each other only where they share a host.
    """

    id: str
    host: str
    describe: str
    check: Callable[[], Sequence[str]]
    apply: Callable[[], None]
    gate: bool = False
    group: str = ""
    wave: str = ""


@dataclass(frozen=True)
class Pending:
    step: Step
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    pending: tuple[Pending, ...]

    @property
    def changes(self) -> int:
        """What would be changed; where nothing is, what an earlier run left to prove."""
        steps = sum(not p.step.gate for p in self.pending)
        return steps or sum(bool(p.differences) for p in self.pending)

    def of(self, group: str) -> tuple[Pending, ...]:
        return tuple(p for p in self.pending if p.step.group == group)

    def document(self) -> list[dict[str, object]]:
        return [
            {
                "id": p.step.id,
                "host": p.step.host,
                "group": p.step.group,
                "describe": p.step.describe,
                "gate": p.step.gate,
                "differences": list(p.differences),
            }
            for p in self.pending
        ]


def make_plan(steps: Iterable[Step], gates: bool = False) -> Plan:
    """Check every step once, in order, changing nothing. `gates`: a plan of gates alone is one too."""
    pending: list[Pending] = []
    for step in steps:
        differences = tuple(step.check())
        if step.gate or differences:
            pending.append(Pending(step, differences))
    if not gates and not any(p.differences for p in pending):
        return Plan(())
    return Plan(tuple(pending))


def joined(plans: Iterable[Plan]) -> Plan:
    """One after the other."""
    return Plan(tuple(p for plan in plans for p in plan.pending))


def apply_step(pending: Pending, journal: Journal, say: Callable[[str], None]) -> None:
    """A step that does not hold after it was applied is an error, like one that raises."""
    step = pending.step
    say(step.describe if step.host == "fleet" else f"{step.host}: {step.describe}")
    with journal.doing(step.id, step.host, step.describe, changes=not step.gate):
        step.apply()
        left = tuple(step.check())
        if left:
            message = f"{step.describe} on {step.host} was done and did not hold: {left[0]}"
            raise PdctlError("step_not_held", message, details=left)
