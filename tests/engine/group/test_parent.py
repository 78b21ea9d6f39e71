"""What ranks are started with, and which limits end them."""

from __future__ import annotations

import os

import pytest

from engine.core.settings import BY_NAME
from engine.group.parent import rank_environment
from engine.group.rank import COLLECTIVE_LIMIT


@pytest.mark.parametrize(("cores", "tp", "threads"), [(8, 1, "8"), (8, 3, "2"), (2, 3, "1")])
def test_ranks_share_out_the_cores_that_the_engine_may_use(
    monkeypatch: pytest.MonkeyPatch, cores: int, tp: int, threads: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    env = rank_environment(tp)
    assert (env["OMP_NUM_THREADS"], env["OMP_WAIT_POLICY"]) == (threads, "PASSIVE")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert rank_environment(tp)["OMP_NUM_THREADS"] == "5", "an operator's own number stands"


@pytest.mark.parametrize("name", ["start", "rank", "step"])
def test_no_collective_gives_up_before_the_watchdog_that_names_the_rank_at_fault(name: str) -> None:
    """It was 60 s, below PD_STEP_TIMEOUT as shipped, and the rank that only waited was the one that ended."""
    assert BY_NAME[name].high <= COLLECTIVE_LIMIT
