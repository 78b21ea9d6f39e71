"""The inflight watchdog fires once, at its value, on both legs, and frees every page."""

from __future__ import annotations

import threading
import time

from tests.e2e.stack import Stack, wait_for

VALUE = 3.0


def test_fires_once_at_its_value(pair: Stack) -> None:
    before = pair["prefill-0"].state()["counters"]["deadlines_fired"].get("inflight", 0)
    log = pair["prefill-0"].log.read_text().count("kv_transfer_timeout")
    pair.admin("prefill-0", "timeouts", inflight=VALUE)
    pair.admin("prefill-0", "faults", name="stall-transfer", armed=True, count=1)
    began = time.monotonic()
    answer = pair.complete("router", "The capital of France is", timeout=30.0)
    took = time.monotonic() - began
    assert answer.status_code == 504
    error = answer.json()["error"]
    assert error["code"] == "kv_transfer_timeout"
    assert "PD_PREFILL_INFLIGHT_TIMEOUT" in error["message"]
    assert VALUE <= took < VALUE + 3.0
    pair.baseline("prefill-0", "decode-0")
    after = pair["prefill-0"].state()
    assert after["counters"]["deadlines_fired"]["inflight"] == before + 1
    assert pair["prefill-0"].log.read_text().count("kv_transfer_timeout") == log + 1
    assert after["dwell"]["recent"][-1][1] >= VALUE and after["dwell"]["recent"][-1][2] == "failed"
    assert pair.complete("router", "The capital of France is").status_code == 200
    pair.admin("prefill-0", "timeouts", inflight=120)


def test_neighbours_of_a_stalled_transfer_are_served(pair: Stack) -> None:
    pair.admin("prefill-0", "timeouts", inflight=60.0)
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
    pair.admin("prefill-0", "timeouts", inflight=0.5)
    thread.join(10.0)
    assert victim == [504]
    pair.baseline("prefill-0", "decode-0")
    pair.admin("prefill-0", "timeouts", inflight=120)


def test_slow_transfers_are_slow_and_not_failed(pair: Stack) -> None:
    pair.admin("prefill-0", "faults", name="slow-transfer", armed=True, value=0.3)
    began = time.monotonic()
    assert pair.complete("router", "Slowly now", 4).status_code == 200
    assert time.monotonic() - began >= 0.3
    pair.admin("prefill-0", "faults", name="slow-transfer", armed=False)
    pair.baseline("prefill-0", "decode-0")
