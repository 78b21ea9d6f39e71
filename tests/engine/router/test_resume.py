"""A request whose engine is lost goes on elsewhere: each token once, bounded tries, then the reason."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import httpx
import pytest

from engine.core.errors import RequestError
from engine.router.pairs import Pair
from engine.router.tries import EDGE, LOST, Tries
from tests.engine.router.stubs import Rig, rig, token_event, until
from tests.engine.router.test_pairs import engine

STREAM = b"".join(map(token_event, range(6))) + b"data: [DONE]\n\n"
TWO = {"a": ("p0", "d0", "d1")}


def six(r: Rig) -> None:
    for stub in r.stubs.values():
        stub.tokens = 6


def error_of(text: str) -> dict[str, str]:
    """The error event that ends a stream."""
    return dict(json.loads([p for p in text.split("\n\n") if p][-1].removeprefix("data: "))["error"])


@pytest.mark.parametrize("cut", [1, 2, 5])
@pytest.mark.parametrize("how", ["fail_after", "error_after"])
def test_a_stream_goes_on_where_it_was_on_another_pair(cut: int, how: str) -> None:
    async def test() -> None:
        async with rig(TWO) as r:
            six(r)
            r.engine("d1").turn = 1  # d0 is next
            setattr(r["d0"], how, cut)
            answer = await r.post(stream=True, id="long", seed=7)
            assert answer.content == STREAM
            first, second = r["d0"].seen[0], r["d1"].seen[0]
            assert first["resumable"]["tokens"] == []
            assert second["resumable"] == first["resumable"] | {"tokens": [100 + i for i in range(cut)]}
            assert r["p0"].seen == [first, second] and second["seed"] == 7
            assert first["bootstrap_room"] != second["bootstrap_room"] and r["d1"].ids == ["long"]
            assert await r.ended() == [("done", None)]
            counters = r.router.ledger.counters()
            assert (counters["requests_total"], counters["retries"], counters["resumed"]) == (1, 1, 1)

    asyncio.run(test())


def test_a_decode_that_is_restarted_alone_finishes_what_it_began() -> None:
    async def test() -> None:
        async with rig() as r:
            six(r)
            r["d0"].pause_after = 3
            asking = asyncio.create_task(r.post(stream=True))
            await until(lambda: any(e.tokens_out == 3 for e in r.router.ledger.live.values()))
            await r["d0"].end()
            await until(lambda: not r.engine("d0").ready)
            (waiting,) = (await r.http.get("/v1/requests")).json()["requests"]
            assert (waiting["stage"], waiting["attempts"], waiting["tokens_out"]) == ("admitted", 1, 3)
            assert waiting["legs"] == {"prefill": None, "decode": None}
            r["d0"].gate.set()
            await r["d0"].start()
            assert (await asking).content == STREAM

    asyncio.run(test())


def test_under_a_hold_a_stream_pauses_and_goes_on_after_it() -> None:
    async def test() -> None:
        async with rig() as r:
            six(r)
            r["d0"].error_after, r["d0"].error_code, r["d0"].failures, r["d0"].pause_after = (
                2,
                "draining",
                1,
                2,
            )
            asking = asyncio.create_task(r.post(stream=True))
            await until(lambda: r.router.ledger.live and r["d0"].active)
            await r.admin("hold")
            r["d0"].gate.set()
            await until(lambda: r.router.ledger.held == 1)
            await r.admin("resume")
            assert (await asking).content == STREAM

    asyncio.run(test())


def test_tries_are_bounded_and_the_error_says_how_often_and_why() -> None:
    async def test() -> None:
        async with rig(TWO, TRIES="2") as r:
            six(r)
            r.engine("d1").turn = 1
            r["d0"].fail_after, r["d1"].fail_after = 2, 4
            text = (await r.post(stream=True)).text
            assert text.encode().startswith(b"".join(map(token_event, range(4)))) and "t4" not in text
            error = error_of(text)
            assert error["code"] == "engine_lost" and "d1 broke off" in error["message"]
            assert "Before that: p0 -> d0 engine_lost (PD_ROUTER_TRIES=2)." in error["message"]
            assert await r.ended() == [("failed", "engine_lost")] and not r.router.ledger.live

    asyncio.run(test())


def test_restarts_that_are_meant_do_not_use_the_tries_up() -> None:
    async def test() -> None:
        async with rig(TRIES="2") as r:
            six(r)
            r["d0"].error_code, r["d0"].error_each, r["d0"].failures = "draining", 1, 5
            assert (await r.post(stream=True)).content == STREAM
            assert len(r["d0"].seen) == 6 and r.router.ledger.resumed == 5
            r["d0"].error_each, r["d0"].failures = 0, 99  # and without progress they do
            error = error_of((await r.post(stream=True)).text)
            assert error["code"] == "draining" and len(r["d0"].seen) == 8

    asyncio.run(test())


def test_tried_once_a_stream_ends_with_its_engine_and_no_ids_are_asked_for() -> None:
    async def test() -> None:
        async with rig(TWO, TRIES="1") as r:
            r["d0"].fail_after = r["d1"].fail_after = 1
            assert error_of((await r.post(stream=True)).text)["code"] == "engine_lost"
            assert "resumable" not in r["p0"].seen[0] and r.router.ledger.retries == 0

    asyncio.run(test())


def test_a_stream_whose_ids_are_not_known_ends_with_its_engine() -> None:
    async def test() -> None:
        async with rig(TWO) as r:
            for name in ("d0", "d1"):
                r[name].marks, r[name].fail_after = False, 1
            assert error_of((await r.post(stream=True)).text)["code"] == "engine_lost"
            r["d0"].fail_after = r["d1"].fail_after = 0  # nothing was sent yet: from the start again
            assert error_of((await r.post(stream=True)).text)["code"] == "engine_lost"
            assert r.router.ledger.retries == 2 and r.router.ledger.resumed == 0

    asyncio.run(test())


def test_ids_and_earlier_tokens_are_between_the_router_and_its_engines() -> None:
    async def test() -> None:
        async with rig() as r:
            answer = await r.post(stream=True, resumable={"id": "x", "created": 1, "tokens": [5]})
            assert b": tokens" not in answer.content and answer.content.startswith(token_event(0))
            assert r["d0"].seen[0]["resumable"]["tokens"] == []
            await r.post(resumable={"tokens": 1})
            assert "resumable" not in r["d0"].seen[1]

    asyncio.run(test())


@pytest.mark.parametrize("name", ["p0", "d0"])
def test_what_is_not_streamed_is_tried_again_from_the_start(name: str) -> None:
    async def test() -> None:
        async with rig({"a": ("p0", "p1", "d0", "d1")}) as r:
            for other in ("p1", "d1"):
                r.engine(other).turn = 1
            r["d0"].pause_after = 0 if name == "p0" else None
            r[name].fail = (500, "engine_failed")
            answer = await r.post(seed=1)
            assert (answer.status_code, answer.json()) == (200, {"text": "whole"})
            assert len(r["p1"].seen) == len(r["d1"].seen) == 1  # neither engine of the pair that failed
            assert await r.ended() == [("done", None)] and r.router.ledger.resumed == 0

    asyncio.run(test())


@pytest.mark.parametrize(
    "code", ["aborted", "invalid_request", "prealloc_timeout", "queue_timeout", "kv_corrupt"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_request_is_told_at_once(code: str, stream: bool) -> None:
    async def test() -> None:
        async with rig(TWO) as r:
            for name in ("d0", "d1"):
                if stream:
                    r[name].error_after, r[name].error_code = 1, code
                else:
                    r[name].fail = (503, code)
            answer = await r.post(stream=stream)
            error = error_of(answer.text) if stream else answer.json()["error"]
            assert (error["code"], error["message"]) == (code, f"It was {code}.")
            assert r.router.ledger.retries == 0

    asyncio.run(test())


@pytest.mark.parametrize("others", [0, 1])
def test_a_transfer_that_timed_out_is_tried_on_another_pair_alone(others: int) -> None:
    async def test() -> None:
        async with rig({"a": ("p0", "d0", "d1")[: 2 + others]}) as r:
            r["d0"].fail = (504, "kv_transfer_timeout")
            if others:
                r.engine("d1").turn = 1
            answer = await r.post()
            if others:
                assert answer.status_code == 200
            else:
                error = answer.json()["error"]
                assert (answer.status_code, error["message"]) == (504, "It was kv_transfer_timeout.")
            assert len(r["d0"].seen) == 1

    asyncio.run(test())


def test_an_engine_that_failed_a_request_is_asked_again_once_it_answered_a_poll() -> None:
    async def test() -> None:
        async with rig() as r:
            r["d0"].fail = (503, "draining")
            asking: asyncio.Task[httpx.Response] = asyncio.create_task(r.post())
            await until(lambda: r["d0"].seen)
            r["d0"].silent = True
            await until(lambda: not r.engine("d0").ready)
            assert len(r["d0"].seen) <= 2 and not asking.done()
            r["d0"].silent, r["d0"].fail = False, None
            assert (await asking).status_code == 200

    asyncio.run(test())


def test_the_policy_is_a_partition() -> None:
    assert not LOST & EDGE
    pair = Pair(engine("p0"), engine("d0"))
    tries = Tries(3)
    fault = RequestError("invalid_request", "No.")
    assert tries.explained(fault) is fault and Counter(str(tries)) == Counter()
    assert tries.again(pair, fault, None, 0.0, False) is fault  # type: ignore[arg-type]
