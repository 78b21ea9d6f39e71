"""The deadlines of a transfer fire once, at their value, end both legs, free every page and say so."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

from engine.core.settings import BY_NAME
from tests.e2e.stack import Stack, wait_for

SHIPPED = {"prealloc": 100, "transfer": 100, "inflight": 120}


def set_all(pair: Stack, **values: float) -> None:
    for name in ("decode-0", "prefill-0"):
        pair.admin(name, "timeouts", **values)


def fired(pair: Stack) -> Counter[str]:
    counts = [pair[name].state()["counters"]["deadlines_fired"] for name in ("prefill-0", "decode-0")]
    return Counter(counts[0]) + Counter(counts[1])


def barks(pair: Stack) -> list[str]:
    """The lines of fired transfer deadlines in the logs of both sides."""
    logs = [pair[name].log.read_text() for name in ("prefill-0", "decode-0")]
    return [line for log in logs for line in log.splitlines() if " kv_transfer_timeout " in f" {line} "]


def ask(pair: Stack, pool: ThreadPoolExecutor) -> Future[httpx.Response]:
    return pool.submit(pair.complete, "router", "The capital of France is", 16, 60.0)


def check(pair: Stack, answer: httpx.Response, name: str, value: float, said: list[str]) -> None:
    """One deadline fired: told to the client, counted once, logged once, every page free."""
    env, error = BY_NAME[name].env, answer.json()["error"]
    assert (answer.status_code, error["code"]) == (504, "kv_transfer_timeout")
    assert f"{env}={value:g} s" in error["message"]
    pair.baseline("prefill-0", "decode-0")
    (line,) = [line for line in barks(pair) if line not in said]
    assert line.endswith(f"deadline={env}={value:g}")
    age = float(line.partition("age=")[2].partition("s ")[0])
    assert value <= age < 2 * value
    for field in ("room=", "request=", "peer=", "pages="):
        assert field in line and f"{field}-" not in line
    assert pair.complete("router", "The capital of France is").status_code == 200


def test_decodes_deadline_is_the_inner_one_and_fires_once_at_its_value(pair: Stack) -> None:
    before, said = fired(pair), barks(pair)
    set_all(pair, prealloc=3, transfer=3, inflight=60)
    pair.admin("prefill-0", "faults", name="stall-transfer", armed=True, count=1)
    with ThreadPoolExecutor(1) as pool:
        check(pair, ask(pair, pool).result(), "transfer", 3, said)
    wait_for("the counter", lambda: fired(pair) - before == Counter(transfer=1))
    set_all(pair, **SHIPPED)


def test_the_watchdog_fires_once_at_its_value_where_decode_still_waits(pair: Stack) -> None:
    """Decode had no pages at first, so its own deadline has begun later than the watchdog."""
    before, said = fired(pair), barks(pair)
    pair.admin("decode-0", "faults", name="refuse-pages", armed=True)
    pair.admin("prefill-0", "faults", name="stall-transfer", armed=True, count=1)

    def waits(for_what: str, seconds: float) -> bool:
        inflight = [r for r in pair["prefill-0"].state()["requests"] if r["stage"] == "inflight"]
        return [r["waiting_on"] for r in inflight if r["stage_age_s"] >= seconds] == [for_what]

    with ThreadPoolExecutor(1) as pool:
        answer = ask(pair, pool)
        wait_for("prefill to wait for decode", lambda: waits("want", 2.0))
        pair.admin("decode-0", "faults", name="refuse-pages", armed=False)
        wait_for("the transfer to stall", lambda: waits("transfer", 2.0))
        set_all(pair, prealloc=9.5, transfer=9.5, inflight=10)
        check(pair, answer.result(), "inflight", 10, said)
    wait_for("the counter", lambda: fired(pair) - before == Counter(inflight=1))
    dwell = pair["prefill-0"].state()["dwell"]["recent"]
    assert [outcome for _, seconds, outcome in dwell if seconds >= 10] == ["failed"]
    set_all(pair, **SHIPPED)


def test_neighbours_of_a_stalled_transfer_are_served(pair: Stack) -> None:
    pair.admin("prefill-0", "faults", name="stall-transfer", armed=True, count=1)
    victim: list[int] = []
    thread = threading.Thread(
        target=lambda: victim.append(pair.complete("router", "I am stuck", timeout=90.0).status_code)
    )
    thread.start()
    wait_for(
        "the stalled request to be inflight",
        lambda: pair["prefill-0"].state()["queues"]["inflight"]["depth"] == 1,
    )
    served = [pair.complete("router", f"Neighbour {i} says", 8).status_code for i in range(5)]
    stuck = [r for r in pair["prefill-0"].state()["requests"] if r["stage"] == "inflight"]
    assert served == [200] * 5
    assert [r["waiting_on"] for r in stuck] == ["transfer"]
    # A live change reaches deadlines that are armed already: the stuck request is over its new value now.
    set_all(pair, prealloc=0.4, transfer=0.4, inflight=0.5)
    thread.join(30.0)
    assert victim == [504]
    pair.baseline("prefill-0", "decode-0")
    set_all(pair, **SHIPPED)


def test_slow_transfers_are_slow_and_not_failed(pair: Stack) -> None:
    pair.admin("prefill-0", "faults", name="slow-transfer", armed=True, value=0.3)
    began = time.monotonic()
    assert pair.complete("router", "Slowly now", 4).status_code == 200
    assert time.monotonic() - began >= 0.3
    pair.admin("prefill-0", "faults", name="slow-transfer", armed=False)
    pair.baseline("prefill-0", "decode-0")
