"""SIGKILL and SIGSTOP of a rank and of an engine, idle and at work, on either side: nothing hangs, all
serve again, and whoever asked is told in our words what happened."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
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


def busy(duo: Stack, name: str) -> tuple[str, list[int], int]:
    """Where `name` shows that it works, and a request that keeps it there: (queue, prompt, tokens)."""
    return ("prefilling", [7] * 3200, 4) if name == "prefill-0" else ("running", [7] * 40, 1500)


def streamed(duo: Stack, prompt: list[int], tokens: int) -> dict[str, Any]:
    """The error that one streamed request through the router ends with: a body, or an event in the stream."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{duo['router'].url}/v1/completions", json=body, timeout=60.0) as answer:
        text = answer.read().decode()
    if answer.status_code != 200:
        return {"status": answer.status_code, **json.loads(text)["error"]}
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith('data: {"error"')]
    assert len(events) == 1, text[-500:]
    return {"status": 200, **events[0]["error"]}


def at_work(duo: Stack, name: str) -> None:
    """Until `name` is in the middle of a step of the request: its ranks are in and out of collectives."""
    queue = busy(duo, name)[0]
    wait_for(f"{name} to compute", lambda: duo[name].state()["queues"][queue]["depth"], every=0.02)
    steps = duo[name].state()["progress"]["steps"]
    wait_for(f"{name} to be at it", lambda: duo[name].state()["progress"]["steps"] > steps, every=0.02)


def hit(duo: Stack, name: str, rank: int, how: signal.Signals) -> tuple[int, int, dict[str, Any]]:
    """Signal a rank while its group computes: (pid, the engine's exit code, the error at the client)."""
    _, prompt, tokens = busy(duo, name)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(streamed, duo, prompt, tokens)
        at_work(duo, name)
        pid = duo[name].ranks()[rank]
        os.kill(pid, how)
        popen = duo[name].popen
        assert popen is not None
        return pid, popen.wait(20.0), answer.result()


def told(error: dict[str, Any], name: str, why: str) -> None:
    """The client reads a typed code and our sentence, from the engine itself or from its peer."""
    by_peer = rf"(Prefill|Decode) {name}/\w+ (was lost: .*|is gone\.)"
    wanted = {"engine_failed": rf"The engine ended: {why}\.", "peer_lost": by_peer}
    assert re.fullmatch(wanted[error["code"]], error["message"]), error
    assert not re.search(r"gloo|nixl|Error|\.cc|GLHF", error["message"], re.IGNORECASE), error


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", SIDES)
def test_a_rank_killed_at_work_is_the_cause_and_not_what_its_peer_makes_of_it(
    duo: Stack, name: str, rank: int
) -> None:
    pid, code, error = hit(duo, name, rank, signal.SIGKILL)
    why = f"rank {rank} (pid {pid}) was killed by signal 9"
    assert code == RANK_DIED, duo[name].tail()
    last = duo[name].tail(3)
    assert f"{name} ends: {why} (exit 71 RANK_DIED)" in last and "Traceback" not in last
    told(error, name, re.escape(why))
    duo.baseline(other(name))
    serves_again(duo, name)


@pytest.mark.parametrize("name", SIDES)
def test_a_rank_frozen_at_work_is_frozen_and_not_dead(duo: Stack, name: str) -> None:
    pid, code, error = hit(duo, name, 1, signal.SIGSTOP)
    assert code == RANK_FROZEN, duo[name].tail()
    told(error, name, rf"rank 1 \(pid {pid}\) is silent for [\d.]+ s")
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
