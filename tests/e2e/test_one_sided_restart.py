"""A one-sided restart heals by itself; with legacy-bootstrap it wedges, and a co-restart cures it."""

from __future__ import annotations

import threading

import pytest

from tests.e2e.stack import Stack, wait_for


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_heals_under_load(pair: Stack, name: str) -> None:
    before = pair[name].state()["incarnation"]
    codes: list[int] = []
    stop = threading.Event()

    def agent() -> None:
        while not stop.is_set():
            codes.append(pair.complete("router", "An agent asks", 8, timeout=60.0).status_code)

    threads = [threading.Thread(target=agent) for _ in range(3)]
    for t in threads:
        t.start()
    wait_for("load", lambda: len(codes) > 3)
    pair[name].restart()
    count = len(codes)
    wait_for("requests to pass again", lambda: codes[count:].count(200) >= 5, 60.0)
    stop.set()
    for t in threads:
        t.join(60.0)
    assert pair[name].state()["incarnation"] != before
    pair.baseline("prefill-0", "decode-0")
    peers = pair["prefill-0"].state()["peers"]
    live = [p for p in peers if p["linked"]]
    assert [p["incarnation"] for p in live] == [pair["decode-0"].state()["incarnation"]]
    assert codes[-1] == 200


def test_legacy_bootstrap_wedges_and_a_co_restart_cures(fresh: Stack) -> None:
    env = {"PD_PREFILL_INFLIGHT_TIMEOUT": "60"}
    fresh.engine("prefill-0", "prefill", env=env, flags=("--legacy-bootstrap",))
    fresh["prefill-0"].wait_ready()
    fresh.engine("decode-0", "decode", env=env)
    fresh["decode-0"].wait_ready()
    fresh.router().wait_ready()
    assert fresh.complete("router", "Before", 4).status_code == 200
    fresh["decode-0"].restart()
    thread = threading.Thread(target=lambda: fresh.complete("router", "Wedged", 4, timeout=90.0))
    thread.start()

    def pinned() -> bool:
        inflight = fresh["prefill-0"].state()["queues"]["inflight"]
        return inflight["depth"] == 1 and inflight["oldest_age_s"] > 3.0

    wait_for("the request to be pinned in the inflight queue", pinned)
    state = fresh["prefill-0"].state()
    assert [p["stale"] for p in state["peers"]] == [True]
    assert state["ready"], "nobody says anything: this is what the wedge looks like"
    fresh.admin("router", "abort", id=state["requests"][0]["id"])
    thread.join(30.0)
    fresh["decode-0"].end()
    fresh["prefill-0"].restart()
    fresh["decode-0"].start()
    fresh["decode-0"].wait_ready()
    wait_for("the pair to serve", lambda: fresh.complete("router", "After", 4).status_code == 200, 30.0)
    fresh.baseline("prefill-0", "decode-0")
