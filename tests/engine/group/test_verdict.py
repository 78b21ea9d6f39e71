"""Which exit code and which sentence a group ends with, whatever order the news of a death comes in."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from engine.core.errors import Exit, RankLost
from engine.core.framing import Channel
from engine.group.messages import Fatal
from engine.group.parent import Rank
from engine.group.verdict import CAUSE_WAIT, SILENT, Judge

TIMEOUT = 20.0


class Group:
    """Two real processes as ranks, a clock that is set by hand, and the ranks' last words."""

    def __init__(self) -> None:
        self.at = 100.0
        self.fatals: list[Fatal] = []
        self.ranks = [self._rank(n) for n in range(2)]
        self.judge = Judge(self.ranks, self.fatals, lambda: self.at)

    def _rank(self, number: int) -> Rank:
        waits = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.exit(int(input()))"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return Rank(number, waits, Channel.__new__(Channel), beat=self.at)

    def verdict(self) -> tuple[Exit, str] | None:
        return self.judge.verdict(TIMEOUT)

    def kill(self, number: int) -> None:
        self.ranks[number].process.kill()
        self.ranks[number].process.wait(10)

    def leaves(self, number: int, code: int) -> None:
        process = self.ranks[number].process
        process.communicate(f"{code}\n".encode(), timeout=10)
        assert process.returncode == code

    def effect(self, number: int) -> None:
        """This rank's collective broke."""
        error = RankLost(f"rank {number}: the collective all_reduce")
        self.fatals.append(Fatal(rank=number, exit=int(error.exit), message=str(error), effect=True))

    def passes(self, seconds: float) -> None:
        """Time, in which every living rank beats."""
        self.at += seconds
        for rank in self.ranks:
            rank.beat = self.at


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    for rank in made.ranks:
        rank.process.kill()
        rank.process.wait(10)
        if rank.process.stdin is not None:
            rank.process.stdin.close()


def test_living_ranks_are_no_verdict(group: Group) -> None:
    group.passes(1000.0)
    assert group.verdict() is None


@pytest.mark.parametrize("killed", [0, 1])
def test_a_broken_collective_waits_for_the_death_that_broke_it(group: Group, killed: int) -> None:
    group.effect(1 - killed)
    assert group.verdict() is None
    group.passes(CAUSE_WAIT / 2)
    assert group.verdict() is None
    group.kill(killed)
    pid = group.ranks[killed].process.pid
    assert group.verdict() == (
        Exit.RANK_DIED,
        f"rank {killed} (pid {pid}) was killed by signal {signal.SIGKILL:d}",
    )


def test_the_survivors_own_exit_hides_no_kill(group: Group) -> None:
    group.effect(0)
    group.leaves(0, int(Exit.INTERNAL))
    group.kill(1)
    verdict = group.verdict()
    assert verdict is not None and verdict[0] == Exit.RANK_DIED and verdict[1].startswith("rank 1 ")


def test_a_rank_that_left_without_a_word_because_another_was_gone_hides_no_kill(group: Group) -> None:
    group.leaves(0, int(Exit.RANK_DIED))
    assert group.verdict() is None
    group.kill(1)
    verdict = group.verdict()
    assert verdict is not None and verdict[1].startswith("rank 1 ")


def test_a_broken_collective_among_the_living_is_the_engines_own_fault(group: Group) -> None:
    group.effect(0)
    assert group.verdict() is None
    group.passes(CAUSE_WAIT)
    assert group.verdict() == (Exit.INTERNAL, "rank 0: the collective all_reduce failed.")


def test_a_broken_collective_beside_a_silent_rank_is_a_frozen_rank(group: Group) -> None:
    group.effect(0)
    assert group.verdict() is None
    group.passes(CAUSE_WAIT)
    group.ranks[1].beat = group.at - SILENT - 0.5
    verdict = group.verdict()
    assert verdict is not None and verdict[0] == Exit.RANK_FROZEN and verdict[1].startswith("rank 1 ")


def test_a_silent_rank_is_frozen_at_its_timeout_and_not_before(group: Group) -> None:
    group.passes(100.0)
    group.ranks[1].beat = group.at - TIMEOUT + 1.0
    assert group.verdict() is None
    group.ranks[1].beat = group.at - TIMEOUT - 1.0
    verdict = group.verdict()
    assert verdict is not None and verdict[0] == Exit.RANK_FROZEN


def test_a_ranks_own_word_is_the_verdict_at_once_and_before_its_effects(group: Group) -> None:
    group.effect(0)
    group.fatals.append(Fatal(rank=1, exit=int(Exit.MODEL), message="The model does not fit."))
    assert group.verdict() == (Exit.MODEL, "The model does not fit.")
    group.leaves(1, int(Exit.MODEL))
    assert group.verdict() == (Exit.MODEL, "The model does not fit.")


def test_a_kill_goes_before_an_unexpected_failure_elsewhere(group: Group) -> None:
    group.fatals.append(Fatal(rank=0, exit=int(Exit.INTERNAL), message="rank 0 failed"))
    assert group.verdict() == (Exit.INTERNAL, "rank 0 failed")
    group.kill(1)
    verdict = group.verdict()
    assert verdict is not None and verdict[0] == Exit.RANK_DIED


def test_a_rank_that_leaves_without_a_word_is_named_with_its_code(group: Group) -> None:
    group.leaves(1, 9)
    pid = group.ranks[1].process.pid
    assert group.verdict() == (Exit.RANK_DIED, f"rank 1 (pid {pid}) exited with code 9")
