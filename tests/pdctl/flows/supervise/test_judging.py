"""The looks go on while the rules run, and whoever waited longest is judged first, a few at a time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pdctl.bundle.documents import Documents
from pdctl.errors import DeadlineError
from pdctl.fleet.load import load_fleet
from pdctl.flows.supervise import judging
from pdctl.flows.supervise.judging import TOGETHER, Judging, Verdict
from pdctl.supervisor.judge import FRONT
from tests.pdctl.supervisor.bed import Virtual
from tests.pdctl.supervisor.sim import fleet_file


class Slow(Judging):
    """A diagnose ends when it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(load_fleet(fleet_file(folder, 12 * 8, 23000)), Virtual())
        self.end, self.judged = threading.Event(), list[frozenset[str]]()

    def _judge(self, cells: frozenset[str], at: float) -> Verdict:
        self.judged.append(cells)
        assert self.end.wait(60)
        return Verdict(cells, at, (), Documents("t", {}))

    def verdict(self) -> Verdict:
        end = time.monotonic() + 60
        while not self.done:
            assert time.monotonic() < end
            time.sleep(0.002)
        found = self.turn()
        assert found is not None
        return found


def test_a_turn_does_not_wait_for_a_diagnose_and_nobody_is_overtaken(tmp_path: Path) -> None:
    work = Slow(tmp_path)
    work.want({f"c{n}" for n in range(6)})
    assert work.turn() is None and work.turn() is None, "it is under way"
    work.want({"c0", "c9"})
    work.end.set()
    first, second = work.verdict(), work.verdict()
    assert first.cells == {f"c{n}" for n in range(TOGETHER)}
    assert second.cells == {"c4", "c5", "c0", "c9"}, "those first that waited, then who asked again"


def test_the_router_is_judged_by_the_whole_fleet_with_all_that_wait(tmp_path: Path) -> None:
    work = Slow(tmp_path)
    work.end.set()
    work.want({FRONT, *(f"c{n}" for n in range(9))})
    work.turn()
    assert work.verdict().cells == {FRONT, *(f"c{n}" for n in range(9))}


def test_a_diagnose_that_never_ends_is_an_error_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the watchdog is not fed, and the service manager starts another one."""
    work = Slow(tmp_path)
    work.want({"c1"})
    work.turn()
    monkeypatch.setattr(judging, "LIMIT", 0.0)
    with pytest.raises(DeadlineError, match="did not end"):
        work.turn()
    work.end.set()
