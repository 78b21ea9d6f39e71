"""What ranks are started with."""

from __future__ import annotations

import os

import pytest

from engine.group.parent import rank_environment


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
