"""Steps of one wave run on all hosts at once, a failure stays with its host, and nothing follows it."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.plan.run import run_steps
from pdctl.plan.step import Pending, Step
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import read_run


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db", "deploy")


class Work:
    """What was done, in order; a step may fail, or wait until others have begun."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._one = threading.Lock()

    def step(
        self, host: str, name: str, wave: str = "", fails: bool = False, meet: threading.Barrier | None = None
    ) -> Pending:
        def apply() -> None:
            if meet is not None:
                meet.wait(20.0)
            if fails:
                raise PdctlError("broken", f"{name} failed.")
            with self._one:
                self.done.append(name)

        return Pending(Step(f"{host}/{name}", host, name, lambda: (), apply, wave=wave), ("differs",))


def quiet(text: str) -> None:
    pass


def test_hosts_of_a_wave_are_worked_on_at_once(journal: Journal) -> None:
    work, meet = Work(), threading.Barrier(3)
    steps = [work.step(host, host, "install", meet=meet) for host in ("a", "b", "c")]
    assert run_steps(steps, journal, quiet) == {}
    assert sorted(work.done) == ["a", "b", "c"]


def test_steps_of_one_host_and_waves_keep_their_order(journal: Journal) -> None:
    work = Work()
    steps = [
        work.step("a", "a1", "one"),
        work.step("b", "b1", "one"),
        work.step("a", "a2", "one"),
        work.step("fleet", "alone"),
        work.step("a", "a3", "two"),
    ]
    run_steps(steps, journal, quiet)
    assert set(work.done[:3]) == {"a1", "b1", "a2"} and work.done.index("a1") < work.done.index("a2")
    assert work.done[3:] == ["alone", "a3"]


def test_one_host_that_fails_lets_the_others_end_and_nothing_follow(journal: Journal, tmp_path: Path) -> None:
    work = Work()
    steps = [
        work.step("a", "a1", "one", fails=True),
        work.step("a", "a2", "one"),
        work.step("b", "b1", "one"),
        work.step("b", "b2", "one"),
        work.step("b", "later", "two"),
    ]
    failed = run_steps(steps, journal, quiet)
    assert {host: error.message for host, error in failed.items()} == {"a": "a1 failed."}
    assert work.done == ["b1", "b2"]
    states = {s.id: s.state for s in read_run(tmp_path / "journal.db", journal.id).steps}
    assert states == {"a/a1": "failed", "b/b1": "done", "b/b2": "done"}


def test_an_interrupt_begins_nothing_more(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    work, go = Work(), threading.Event()

    def interrupted(*args: object, **more: object) -> None:
        go.set()
        raise KeyboardInterrupt

    def first() -> None:
        go.wait(20.0)
        work.done.append("under way")

    begun = Pending(Step("a/1", "a", "one", lambda: (), first, wave="w"), ("differs",))
    later = [work.step("a", "not begun", "w"), work.step("b", "b", "w")]
    waits = iter([interrupted, wait])
    monkeypatch.setattr("pdctl.plan.run.wait", lambda *args, **more: next(waits)(*args, **more))
    with pytest.raises(KeyboardInterrupt):
        run_steps([begun, *later], journal, quiet)
    assert "under way" in work.done and "not begun" not in work.done
