"""Both legs of a request: what is sent, what passes through, how one leg's failure ends the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import httpx
import pytest

from engine.router.legs import engine_error
from engine.router.pairs import Engine
from tests.engine.router.stubs import Rig, rig, token_event, until

STREAM = b"".join(map(token_event, range(3))) + b"data: [DONE]\n\n"


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def first_chunk(r: Rig, id: str = "s") -> tuple[httpx.Response, Any]:
    request = r.http.build_request(
        "POST", "/v1/completions", json={"prompt": "p", "stream": True}, headers={"X-Request-ID": id}
    )
    response = await r.http.send(request, stream=True)
    chunks = response.aiter_raw()
    assert b"t0" in await anext(chunks)
    return response, chunks


def test_both_legs_get_the_body_and_where_to_meet() -> None:
    async def test() -> None:
        async with rig() as r:
            answer = await r.post(id="x-1", seed=5)
            assert (answer.status_code, answer.json()) == (200, {"text": "whole"})
            assert answer.headers["x-request-id"] == "x-1" and r["p0"].ids == r["d0"].ids == ["x-1"]
            assert r["p0"].seen == r["d0"].seen
            sent = r["p0"].seen[0]
            assert (sent["prompt"], sent["seed"]) == ("p", 5)
            assert (sent["bootstrap_host"], sent["bootstrap_port"]) == ("h", 9)
            assert 0 < sent["bootstrap_room"] < 2**63
            generated = await r.post()
            assert generated.headers["x-request-id"] == r["p0"].ids[1]
            assert r["p0"].seen[1]["bootstrap_room"] != sent["bootstrap_room"]
            assert await r.ended(2) == [("done", None)] * 2

    go(test())


def test_a_stream_passes_byte_for_byte_and_unbuffered() -> None:
    async def test() -> None:
        async with rig() as r:
            assert (await r.post(stream=True)).content == STREAM
            r["d0"].pause_after = 1
            response, chunks = await first_chunk(r)
            live = (await r.http.get("/v1/requests")).json()["requests"][0]
            assert (live["id"], live["stage"], live["tokens_out"], live["stream"]) == (
                "s",
                "streaming",
                1,
                True,
            )
            assert (
                live["legs"]["prefill"]["status"] == "done" and live["legs"]["decode"]["status"] == "pending"
            )
            r["d0"].gate.set()
            assert b"".join([c async for c in chunks]).endswith(b"data: [DONE]\n\n")
            await response.aclose()

    go(test())


@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_prefill_ends_the_decode_leg_and_is_what_the_client_sees(stream: bool) -> None:
    async def test() -> None:
        async with rig() as r:
            r["d0"].pause_after = 0
            r["p0"].fail = (504, "kv_transfer_timeout")
            answer = await r.post(stream=stream)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "kv_transfer_timeout")
            await until(lambda: r["d0"].dropped == 1)
            assert await r.ended() == [("failed", "kv_transfer_timeout")]
            assert r.engine("p0").active == r.engine("d0").active == 0

    go(test())


@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_decode_ends_the_prefill_leg(stream: bool) -> None:
    async def test() -> None:
        async with rig() as r:
            r["p0"].pause_after = 0
            r["d0"].fail = (503, "prealloc_timeout")
            answer = await r.post(stream=stream)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "prealloc_timeout")
            assert answer.json()["error"]["message"] == "It was prealloc_timeout."
            await until(lambda: r["p0"].dropped == 1)
            assert await r.ended() == [("failed", "prealloc_timeout")]

    go(test())


def test_a_prefill_that_fails_once_decode_answers_is_nothing_to_the_stream() -> None:
    """Decode answers when it has the KV, so what is missing is a receipt."""

    async def test() -> None:
        async with rig() as r:
            r["d0"].pause_after, r["p0"].pause_after = 1, 0
            response, chunks = await first_chunk(r)
            r["p0"].fail = (502, "peer_lost")
            r["p0"].gate.set()
            await until(lambda: r.engine("p0").active == 0)
            r["d0"].gate.set()
            assert (b"".join([c async for c in chunks])).endswith(b"data: [DONE]\n\n")
            assert await r.ended() == [("done", None)] and r["d0"].dropped == 0
            await response.aclose()

    go(test())


def test_a_decode_that_breaks_off_is_an_event_not_a_silent_end() -> None:
    async def test() -> None:
        async with rig(TRIES="1") as r:
            r["d0"].fail_after = 2
            text = (await r.post(stream=True)).text
            *tokens, last = [p for p in text.split("\n\n") if p]
            error = json.loads(last.removeprefix("data: "))["error"]
            assert (len(tokens), error["code"]) == (2, "engine_lost")
            assert error["message"] == "d0 broke off during decode. See whether it restarted."
            assert await r.ended() == [("failed", "engine_lost")]

    go(test())


def test_an_engines_own_error_event_passes_once_and_counts_as_failed() -> None:
    async def test() -> None:
        async with rig(TRIES="1") as r:
            r["d0"].error_after = 1
            text = (await r.post(stream=True)).text
            assert text.count('"error"') == 1 and await r.ended() == [("failed", "engine_failed")]

    go(test())


def test_an_abort_inside_a_stream_counts_as_aborted() -> None:
    async def test() -> None:
        async with rig() as r:
            r["d0"].error_after, r["d0"].error_code = 1, "aborted"
            assert '"code":"aborted"' in (await r.post(stream=True)).text
            assert await r.ended() == [("aborted", "aborted")]

    go(test())


def test_a_trace_header_that_no_header_may_be_is_left_out() -> None:
    async def test() -> None:
        async with rig() as r:
            headers = {b"traceparent": "é".encode("latin-1"), b"tracestate": b"a=1"}
            answer = await r.http.post("/v1/completions", json={"prompt": "p"}, headers=headers)
            assert answer.status_code == 200, answer.text

    go(test())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_closes_both_legs(stream: bool) -> None:
    async def test() -> None:
        async with rig() as r:
            r["p0"].pause_after = 0
            r["d0"].pause_after = 1 if stream else 0
            if stream:
                response, _ = await first_chunk(r)
                await response.aclose()
            else:
                asking = asyncio.create_task(r.post())
                await until(lambda: r["d0"].active and r["p0"].active)
                asking.cancel()
            await until(lambda: r["d0"].dropped == r["p0"].dropped == 1)
            assert await r.ended() == [("aborted", "client")] and not r.router.ledger.live

    go(test())


def test_an_operator_can_end_one_request() -> None:
    async def test() -> None:
        async with rig() as r:
            r["p0"].pause_after = r["d0"].pause_after = 0
            asking = asyncio.create_task(r.post(id="stuck"))
            await until(lambda: r["p0"].active and r["d0"].active)
            assert await r.admin("abort", id="other") == {"aborted": False}
            assert await r.admin("abort", id="stuck") == {"aborted": True}
            answer = await asking
            assert (answer.status_code, answer.json()["error"]["code"]) == (499, "aborted")
            await until(lambda: r["d0"].dropped == r["p0"].dropped == 1)
            assert await r.ended() == [("aborted", "aborted")]

    go(test())


def test_a_client_is_not_kept_for_a_late_prefill_receipt() -> None:
    async def test() -> None:
        async with rig() as r:
            r["p0"].pause_after = 0
            assert (await asyncio.wait_for(r.post(), 20)).status_code == 200
            await until(lambda: r["p0"].dropped == 1)
            assert await r.ended() == [("done", None)]

    go(test())


def test_a_body_that_is_no_call_is_refused_before_the_ledger() -> None:
    async def test() -> None:
        async with rig() as r:
            for bad in (b"[1]", b"{", b'{"stream": 1}', b'{"model": 7}'):
                answer = await r.http.post("/v1/completions", content=bad)
                assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"
            assert (await r.http.get("/v1/completions")).json()["error"]["code"] == "method_not_allowed"
            assert r.router.ledger.total == 0 and r["p0"].seen == []

    go(test())


def test_an_answer_that_is_no_error_of_ours_is_quoted_in_part() -> None:
    error = engine_error(Engine("d0", "decode", "a", "http://h:1"), 418, b"teapot" * 1000)
    assert (error.status, error.code) == (418, "engine_failed")
    assert "d0 answered 418" in error.message and "teapot" in error.message and len(error.message) < 400
    assert engine_error(Engine("d0", "decode", "a", "http://h:1"), 302, b"").status == 502
