"""A step knows what it would change and how; a plan is the steps that would change something."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.remote.journal import Journal


@dataclass(frozen=True)
class Step:
    """`check` returns what differs from what is wanted, a line each; nothing when it holds already.

    A gate waits or proves and changes nothing: it runs only in a plan that changes something.
    """

    id: str
    host: str
    describe: str
    check: Callable[[], Sequence[str]]
    apply: Callable[[], None]
    gate: bool = False


@dataclass(frozen=True)
class Pending:
    step: Step
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    pending: tuple[Pending, ...]

    @property
    def changes(self) -> int:
        return sum(not p.step.gate for p in self.pending)

    def document(self) -> list[dict[str, object]]:
        return [
            {
                "id": p.step.id,
                "host": p.step.host,
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
        differences = () if step.gate else tuple(step.check())
        if step.gate or differences:
            pending.append(Pending(step, differences))
    if not gates and all(p.step.gate for p in pending):
        return Plan(())
    return Plan(tuple(pending))


def run_plan(plan: Plan, journal: Journal, say: Callable[[str], None]) -> None:
    """Apply in order. A step that does not hold after it was applied is an error, like one that raises."""
    for pending in plan.pending:
        step = pending.step
        say(step.describe)
        begin = time.monotonic()
        try:
            step.apply()
            left = () if step.gate else tuple(step.check())
            if left:
                message = f"{step.describe} on {step.host} was done and did not hold: {left[0]}"
                raise PdctlError("step_not_held", message, details=left)
        except PdctlError as error:
            seconds = time.monotonic() - begin
            journal.step(step.id, step.host, step.describe, "failed", seconds, error.message)
            raise
        journal.step(step.id, step.host, step.describe, "done", time.monotonic() - begin)
