"""A plan holds what would change; applying it is checked; a second one is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.plan.run import run_plan
from pdctl.plan.step import Step, make_plan
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import read_run


class World:
    """Names that are set; steps set them."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def step(self, name: str, gate: bool = False, sticks: bool = True, fails: str = "") -> Step:
        def apply() -> None:
            if fails:
                raise PdctlError("broken", fails)
            if sticks:
                self.done.append(name)

        def check() -> list[str]:
            return [] if gate or name in self.done else [f"{name} is not set"]

        return Step(name, "local", f"set {name}", check, apply, gate)


def test_only_what_differs_is_planned_and_applied_in_order(tmp_path: Path) -> None:
    world = World()
    world.done = ["b"]
    steps = [world.step("a"), world.step("b"), world.step("proof", gate=True), world.step("c")]
    plan = make_plan(steps)
    assert [p.step.id for p in plan.pending] == ["a", "proof", "c"]
    assert (plan.changes, world.done) == (2, ["b"])
    with Journal(tmp_path / "journal.db", "deploy") as journal:
        run_plan(plan, journal, lambda text: None)
    assert world.done == ["b", "a", "proof", "c"]
    assert [s.state for s in read_run(tmp_path / "journal.db", journal.id).steps] == ["done"] * 3
    assert make_plan(steps).pending == ()


def test_gates_alone_are_no_plan() -> None:
    world = World()
    assert make_plan([world.step("proof", gate=True)]).pending == ()


def test_a_step_that_does_not_hold_stops_the_run(tmp_path: Path) -> None:
    world = World()
    plan = make_plan([world.step("a", sticks=False), world.step("b")])
    with pytest.raises(PdctlError) as caught, Journal(tmp_path / "journal.db", "deploy") as journal:
        run_plan(plan, journal, lambda text: None)
    assert caught.value.code == "step_not_held"
    assert world.done == []
    run = read_run(tmp_path / "journal.db", journal.id)
    assert (run.state, [s.state for s in run.steps]) == ("failed", ["failed"])


def test_what_failed_is_in_the_journal(tmp_path: Path) -> None:
    world = World()
    plan = make_plan([world.step("a"), world.step("b", fails="No disk.")])
    with pytest.raises(PdctlError, match="No disk"), Journal(tmp_path / "journal.db", "deploy") as journal:
        run_plan(plan, journal, lambda text: None)
    assert [(s.id, s.state, s.detail) for s in read_run(tmp_path / "journal.db", journal.id).steps] == [
        ("a", "done", ""),
        ("b", "failed", "No disk."),
    ]
