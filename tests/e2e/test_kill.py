"""SIGKILL and SIGSTOP of a rank and of an engine, on either side: nothing hangs, all serve again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, stack, wait_for

RANK_DIED, RANK_FROZEN = 71, 72
SIDES = ["prefill-0", "decode-0"]
QUICK = {"PD_RANK_TIMEOUT": "3", "PD_HEARTBEAT_TIMEOUT": "2", "PD_PREFILL_INFLIGHT_TIMEOUT": "8"}


@pytest.fixture(scope="module")
def duo(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> Iterator[Stack]:
    """One pair for all tests here: each leaves it serving again, which is half of what it tests."""
    with stack(tmp_path_factory.mktemp("duo"), smollm) as s:
        s.engine("prefill-0", "prefill", tp=2, env=QUICK)
        s.engine("decode-0", "decode", env=QUICK, tp=2)
        s["prefill-0"].wait_ready()
        s["decode-0"].wait_ready()
        s.router(env={"PD_ROUTER_IDLE_TIMEOUT": "15"}).wait_ready()
        assert s.complete("router", "Hello", 4).status_code == 200
        yield s


def other(name: str) -> str:
    return "decode-0" if name == "prefill-0" else "prefill-0"


def serves_again(duo: Stack, name: str) -> None:
    """Start the dead side alone; the survivor fences the old life and links the new one by itself."""
    duo[name].start()
    duo[name].wait_ready()
    wait_for("the pair to serve", lambda: duo.complete("router", "Hello again", 4).status_code == 200, 30.0)
    duo.baseline("prefill-0", "decode-0")


@pytest.mark.parametrize("name", SIDES)
def test_a_killed_rank_ends_its_group_with_its_own_code(duo: Stack, name: str) -> None:
    os.kill(duo[name].ranks()[1], signal.SIGKILL)
    assert duo[name].popen is not None
    assert duo[name].popen.wait(10.0) == RANK_DIED
    assert "rank 1" in duo[name].tail() and "signal 9" in duo[name].tail()
    duo.baseline(other(name))
    serves_again(duo, name)


@pytest.mark.parametrize("name", SIDES)
def test_a_frozen_rank_ends_its_group(duo: Stack, name: str) -> None:
    os.kill(duo[name].ranks()[1], signal.SIGSTOP)
    assert duo[name].popen is not None
    assert duo[name].popen.wait(20.0) == RANK_FROZEN
    serves_again(duo, name)


@pytest.mark.parametrize("name", SIDES)
def test_a_killed_engine_leaves_no_rank_behind(duo: Stack, name: str) -> None:
    ranks = duo[name].ranks()
    os.kill(duo[name].pid, signal.SIGKILL)
    duo[name].popen.wait(5.0)
    wait_for("its ranks to be gone", lambda: not any(alive(pid) for pid in ranks), 10.0)
    began = time.monotonic()
    answer = duo.complete("router", "Anyone there?", 4, timeout=40.0)
    assert answer.status_code in (502, 503), answer.text
    assert time.monotonic() - began < 35.0
    duo.baseline(other(name))
    serves_again(duo, name)


@pytest.mark.parametrize("name", SIDES)
def test_a_frozen_engine_hangs_nobody_and_is_well_after_the_thaw(duo: Stack, name: str) -> None:
    group = [duo[name].pid, *duo[name].ranks()]
    for pid in group:
        os.kill(pid, signal.SIGSTOP)
    try:
        answer = duo.complete("router", "Frozen?", 4, timeout=60.0)
        assert answer.status_code in (502, 503, 504), answer.text
    finally:
        for pid in reversed(group):
            os.kill(pid, signal.SIGCONT)
    wait_for("the pair to serve", lambda: duo.complete("router", "Thawed", 4).status_code == 200, 40.0)
    duo.baseline("prefill-0", "decode-0")


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_stopped_engine_says_so_to_what_it_does_not_finish(fresh: Stack) -> None:
    fresh.engine("single", "both", env={"PD_DRAIN_TIMEOUT": "0"}).wait_ready()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fresh.complete, "single", "Count:", 2000)
        wait_for("the request to run", lambda: fresh["single"].state()["queues"]["running"]["depth"])
        assert fresh["single"].end() == 0
        assert (answer.result().status_code, answer.result().json()["error"]["code"]) == (503, "draining")
