"""Wedges that are not transfers: seen by progress within their bound, and ended as one group.

Each test shows that the fault took effect, how long it took to be found, that no process of the group is
left, that the peer holds nothing, and that a new life serves. docs/operations.md has the bounds as a table.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Container, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.oneway import OneWay
from tests.e2e.stack import Process, Stack, bootstrap_port, free_port, stack, wait_for

RANK, HEARTBEAT, STEP = 5.0, 2.0, 8.0
FROZEN, NO_PROGRESS = 72, 76
# A beat is half a second, a look at it a tenth, the state a quarter; two cores are shared with other tests.
SLACK = 3.0
# A stopped API process answers its clients and closes before it exits.
LEAVE = 20.0
QUICK = {
    "PD_RANK_TIMEOUT": f"{RANK:g}",
    "PD_HEARTBEAT_TIMEOUT": f"{HEARTBEAT:g}",
    "PD_STEP_TIMEOUT": f"{STEP:g}",
}
SIDES = ["prefill-0", "decode-0"]


@pytest.fixture(scope="module")
def duo(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> Iterator[Stack]:
    """One pair for all tests here: each ends with it serving again. Two ranks on prefill, one on decode."""
    with stack(tmp_path_factory.mktemp("wedge"), smollm) as s:
        s.engine("prefill-0", "prefill", tp=2, env=QUICK).wait_ready()
        s.engine("decode-0", "decode", env=QUICK).wait_ready()
        s.router(env={"PD_ROUTER_IDLE_TIMEOUT": "150", "PD_ROUTER_TRIES": "1"}).wait_ready()
        assert s.complete("router", "Hello", 4).status_code == 200
        yield s


def frozen(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def group_of(process: Process) -> list[psutil.Process]:
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children()]


def other(name: str) -> str:
    return "decode-0" if name == "prefill-0" else "prefill-0"


def ended(
    duo: Stack,
    name: str,
    inject: Callable[[], object],
    code: int,
    bound: float,
    why: str,
    answers: Container[int] = (500, 502, 503, 504),
) -> None:
    """`inject` wedges `name` while a request waits: what the module's docstring says, in its order."""
    process, group = duo[name], group_of(duo[name])
    assert process.popen is not None
    with ThreadPoolExecutor(1) as pool:
        inject()
        answer: Future[httpx.Response] = pool.submit(duo.complete, "router", "Anyone?", 4, timeout=60.0)
        assert process.popen.wait(bound + LEAVE) == code, process.tail()
        said = rf"{name} ends: {re.escape(why)} ([\d.]+) s.* \(exit {code} \w+\)$"
        found = re.findall(said, process.tail(4), re.MULTILINE)
        assert len(found) == 1 and "Traceback" not in process.tail(4), process.tail(4)
        assert bound <= float(found[0]) < bound + SLACK, f"found after {found[0]} s, not {bound:g} s"
        told = answer.result()
    assert told.status_code in answers, f"{told.status_code} {told.text}"
    body = told.json()
    assert body["text"] if told.status_code == 200 else body["error"]["code"], (
        "no hang, and nothing by halves"
    )
    assert not [p for p in group if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    duo.baseline(other(name))
    process.start()
    process.wait_ready()
    wait_for("the pair to serve", lambda: duo.complete("router", "Again", 4).status_code == 200, 30.0)
    duo.baseline(*SIDES)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_for(f"{pid} to be stopped", lambda: frozen(pid), 2.0, every=0.005)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("prefill-0", 1),
        pytest.param("prefill-0", 0, marks=pytest.mark.slow),
        pytest.param("decode-0", 0, marks=pytest.mark.slow),
    ],
)
def test_a_frozen_rank_and_a_frozen_leader(duo: Stack, name: str, rank: int) -> None:
    pid = duo[name].ranks()[rank]
    ended(duo, name, lambda: stop(pid), FROZEN, RANK, f"rank {rank} (pid {pid}) is silent for")


@pytest.mark.parametrize("name", ["decode-0", pytest.param("prefill-0", marks=pytest.mark.slow)])
def test_a_frozen_api_process_is_ended_by_its_ranks(duo: Stack, name: str) -> None:
    """It is woken to end its group itself: its own exit code, and an answer to whoever waits.

    Its ranks are well: a short request that it takes up as it wakes may be served before it has closed.
    """
    pid = duo[name].pid
    why = f"the API process (pid {pid}) was silent for"
    ended(duo, name, lambda: stop(pid), FROZEN, RANK, why, answers=(200, 500, 502, 503, 504))


@pytest.mark.parametrize("name", ["prefill-0", pytest.param("decode-0", marks=pytest.mark.slow)])
def test_a_scheduler_that_is_alive_and_makes_no_step(duo: Stack, name: str) -> None:
    def inject() -> None:
        duo.admin(name, "faults", name="stop-steps", armed=True)

    def evidence() -> None:
        inject()
        pool.submit(duo.complete, "router", "First", 4, timeout=60.0)
        wait_for("no step to be made", lambda: duo[name].state()["faults"]["hits"].get("stop-steps"), 10.0)
        state = duo[name].state()
        assert state["progress"]["loop_age_s"] < 2.0 and state["snapshot_age_s"] < 2.0, "it is alive"

    with ThreadPoolExecutor(1) as pool:
        ended(duo, name, evidence, NO_PROGRESS, STEP, "its scheduler made no progress for")
    log = duo[name].log.read_text(errors="replace")
    assert "most recent call first" in log and "leader.py" in log, "its log says where each thread stood"


@pytest.mark.slow
@pytest.mark.parametrize("silent", ["dialer", "listener"])
def test_a_control_connection_that_is_heard_one_way_only(fresh: Stack, silent: str) -> None:
    """Who hears nothing drops the link at the heartbeat, the other a heartbeat later; they link anew."""
    fresh.engine("prefill-0", "prefill", env=QUICK)
    public = bootstrap_port(fresh["prefill-0"])
    fresh["prefill-0"].end()
    fresh["prefill-0"].argv += ["--bootstrap-port", str(port := free_port())]  # the last one counts
    with OneWay(public, port) as proxy:
        fresh["prefill-0"].start()
        fresh["prefill-0"].wait_ready()
        fresh.engine("decode-0", "decode", env=QUICK).wait_ready()
        fresh.router(env={"PD_ROUTER_TRIES": "1"}).wait_ready()
        assert fresh.complete("router", "Hello", 4).status_code == 200
        beats = {n: heartbeats(fresh, n) for n in SIDES}
        fresh.admin("prefill-0", "faults", name="stall-transfer", armed=True, count=1)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(fresh.complete, "router", "Held", 4, timeout=60.0)
            wait_for("it to be inflight", lambda: fresh["prefill-0"].state()["queues"]["inflight"]["depth"])
            began = time.monotonic()
            proxy.swallow(silent)
            deaf = "prefill-0" if silent == "dialer" else "decode-0"
            wait_for(f"{deaf} to drop the link", lambda: heartbeats(fresh, deaf) > beats[deaf], 20.0)
            assert time.monotonic() - began < HEARTBEAT + SLACK + 2.0
            assert answer.result().json()["error"]["code"] == "peer_lost"
        assert proxy.swallowed > 0
        wait_for("the pair to serve", lambda: fresh.complete("router", "Again", 4).status_code == 200, 30.0)
        fresh.baseline(*SIDES)


def heartbeats(duo: Stack, name: str) -> int:
    return int(duo[name].state()["counters"]["deadlines_fired"].get("heartbeat", 0))
