"""A decode that is full for tens of seconds: nothing fails, prefill computes a bounded way ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, bootstrap_port, stack, wait_for

# Both sides wait for decode at most so long, and prefill's watchdog is set just above.
DECODE, INFLIGHT = 80.0, 85.0
LEGS = 8


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> Iterator[Stack]:
    """A prefill of 15 pages of 16 tokens, and a decode that runs one request at a time."""
    env = {
        "PD_DECODE_PREALLOC_TIMEOUT": f"{DECODE:g}",
        "PD_DECODE_TRANSFER_TIMEOUT": f"{DECODE:g}",
        "PD_PREFILL_INFLIGHT_TIMEOUT": f"{INFLIGHT:g}",
    }
    with stack(tmp_path_factory.mktemp("narrow"), smollm) as s:
        s.engine("prefill-0", "prefill", pages=16, env=env)
        s["prefill-0"].wait_ready()
        s.engine("decode-0", "decode", pages=256, max_running=1, env=env)
        s["decode-0"].wait_ready()
        s.router().wait_ready()
        yield s


def prompt(seed: int, tokens: int) -> list[int]:
    return [100 + (seed * 37 + i * 11) % 4000 for i in range(tokens)]


def fired(s: Stack) -> dict[str, int]:
    """Deadlines of requests that fired on either side since the start."""
    both = [s[name].state()["counters"]["deadlines_fired"] for name in ("prefill-0", "decode-0")]
    return {
        k: n for each in both for k, n in each.items() if k in ("inflight", "transfer", "prealloc", "queue")
    }


def requests(s: Stack, name: str) -> dict[str, dict[str, Any]]:
    return {r["id"]: r for r in s[name].state()["requests"]}


def test_pools_of_one_prompt_and_two_orders_do_not_wait_for_one_another(narrow: Stack) -> None:
    """A then B at prefill, B then A at decode: prefill gives up A, which nobody asked for yet."""
    prompts = {"a": prompt(1, 200), "b": prompt(2, 200)}
    wanted = {name: narrow.ids("router", ids, 4) for name, ids in prompts.items()}
    before = narrow["prefill-0"].state()["counters"]["preemptions"]
    port = bootstrap_port(narrow["prefill-0"])

    def leg(at: str, name: str) -> Any:
        where = {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": ord(name)}
        return pool.submit(narrow.complete, at, prompts[name], 4, 90.0, rid=name, **where)

    def stands(at: str, name: str, key: str, value: str) -> None:
        what = f"{name} to have {key} {value} at {at}"
        wait_for(what, lambda: requests(narrow, at).get(name, {}).get(key) == value)

    with ThreadPoolExecutor(4) as pool:
        began = time.monotonic()
        legs = [leg("prefill-0", "a")]
        stands("prefill-0", "a", "stage", "inflight")
        legs.append(leg("prefill-0", "b"))
        stands("prefill-0", "b", "waiting_on", "decode")
        answers = {"b": leg("decode-0", "b")}
        wait_for(
            "b at decode", lambda: "b" in requests(narrow, "decode-0") or answers["b"].done(), every=0.01
        )
        answers["a"] = leg("decode-0", "a")
        got = {name: answer.result().json() for name, answer in answers.items()}
        assert [each.result().status_code for each in legs] == [200, 200]
        assert time.monotonic() - began < DECODE, "it did not take a deadline"
    assert {name: body["output_ids"] for name, body in got.items()} == wanted
    assert narrow["prefill-0"].state()["counters"]["preemptions"] == before + 1
    assert fired(narrow) == {}
    narrow.baseline("prefill-0", "decode-0")


@pytest.mark.parametrize("wait", [12.0, pytest.param(45.0, marks=pytest.mark.slow)])
def test_a_saturated_decode_is_waited_for(narrow: Stack, wait: float) -> None:
    """Legs of 2 pages over a pool of 15: three are computed ahead, which is half of it."""
    prompts = [prompt(10 + i, 30) for i in range(LEGS)]
    wanted = [narrow.ids("router", ids, 4) for ids in prompts]
    with ThreadPoolExecutor(LEGS + 1) as pool:
        hog = pool.submit(narrow.complete, "router", prompt(3, 8), 3900, 150.0)
        running = wait_for(
            "decode to be full",
            lambda: [
                r
                for r in requests(narrow, "decode-0").values()
                if r["stage"] == "running" and r["prompt_tokens"] == 8
            ],
        )
        answers = [pool.submit(narrow.complete, "router", ids, 4, 150.0) for ids in prompts]

        def waited() -> bool:
            state = narrow["prefill-0"].state()
            live = [r for r in state["requests"] if r["id"] != running[0]["id"]]
            ahead = [r for r in live if r["stage"] in ("prefilling", "inflight")]
            assert len(ahead) <= 3 and state["pages"]["held"] <= 7, "prefill piles up"
            return len(live) == LEGS and min(r["age_s"] for r in live) >= wait

        try:
            wait_for(f"all to wait {wait:g} s", waited, wait + 30.0, every=0.2)
        except AssertionError:
            narrow.admin("router", "abort", id=running[0]["id"])  # else the pool's end waits for it
            raise
        legs = requests(narrow, "prefill-0").values()
        assert sorted((r["stage"], r["waiting_on"]) for r in legs) == [("inflight", "want")] * 3 + [
            ("waiting", "decode")
        ] * (LEGS - 3)
        assert not any(a.done() for a in answers) and not hog.done()
        narrow.admin("router", "abort", id=running[0]["id"])
        got = [a.result() for a in answers]
    assert [a.status_code for a in got] == [200] * LEGS, [a.text for a in got]
    assert [a.json()["output_ids"] for a in got] == wanted
    assert fired(narrow) == {}
    dwell = [seconds for _, seconds, how in narrow["prefill-0"].state()["dwell"]["recent"] if how == "done"]
    assert max(dwell) >= wait - 2.0, "the wait is to be seen as dwell"
    narrow.baseline("prefill-0", "decode-0")
