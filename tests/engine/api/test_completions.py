"""Answers of the three inference routes, whole and streamed, from a scripted group."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.engine.api.scripted import TEXT, Output, Scripted, app, call, serving, spell, until

PROMPT = {"prompt": "hello", "max_tokens": 5}


def events(text: str) -> list[Any]:
    parts = [p for p in text.split("\n\n") if p]
    assert all(p.startswith("data: ") for p in parts)
    return [p if p == "data: [DONE]" else json.loads(p.removeprefix("data: ")) for p in parts]


def test_a_completion_has_text_usage_and_its_id() -> None:
    client = Scripted(spell("café", "stop"))
    answer = call(client, "/v1/completions", PROMPT, headers={"X-Request-ID": "mine"})
    body = answer.json()
    assert answer.status_code == 200 and answer.headers["x-request-id"] == "mine" == body["id"]
    assert body["choices"] == [{"index": 0, "text": "café", "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    assert (body["object"], body["model"]) == ("text_completion", "tiny")
    assert client.submitted[0].prompt == TEXT.encode("hello") and client.aborted == []


def test_sampling_reaches_the_group_with_openai_defaults() -> None:
    client = Scripted(spell("x"))
    call(client, "/v1/completions", {"prompt": "a"})
    s = client.submitted[0].sampling
    assert (s.max_tokens, s.temperature, s.top_p, s.top_k, s.seed, s.ignore_eos) == (
        16,
        1.0,
        1.0,
        0,
        None,
        False,
    )
    wanted = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 7,
        "seed": 3,
        "ignore_eos": True,
        "stop_token_ids": [9],
    }
    call(client, "/v1/completions", {"prompt": "a", "max_tokens": 3, **wanted})
    s = client.submitted[1].sampling
    assert (s.max_tokens, s.temperature, s.top_p, s.top_k, s.seed, s.ignore_eos) == (3, 0.0, 0.5, 7, 3, True)
    assert s.stop_token_ids == (9,)


@pytest.mark.parametrize("prompt", [[5, 6], [[5, 6]]])
def test_prompts_may_be_token_ids(prompt: Any) -> None:
    client = Scripted(spell("x"))
    assert call(client, "/v1/completions", {"prompt": prompt}).status_code == 200
    assert client.submitted[0].prompt == [5, 6]


def test_the_answer_is_cut_to_the_window() -> None:
    client = Scripted(spell("x"))
    call(client, "/v1/completions", {"prompt": "a" * 60, "max_tokens": 1000})
    assert client.submitted[0].sampling.max_tokens == 4


def test_a_stream_of_text_ends_with_usage_and_done() -> None:
    body = {**PROMPT, "stream": True, "stream_options": {"include_usage": True}}
    answer = call(Scripted(spell("a€b", "length")), "/v1/completions", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, usage, done = events(answer.text)
    assert done == "data: [DONE]" and usage["choices"] == [] and usage["usage"]["completion_tokens"] == 5
    assert [c["choices"][0]["text"] for c in chunks] == ["a", "€", "b"]
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, "length"]
    assert all(c["usage"] is None for c in chunks)


def test_chat_renders_the_template_and_streams_deltas() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    client = Scripted(spell("ok", "stop"))
    whole = call(client, "/v1/chat/completions", {"messages": messages}).json()
    assert client.submitted[0].prompt == TEXT.encode("user:hi\n")
    assert client.submitted[0].sampling.max_tokens == 64 - len("user:hi\n")
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "ok"}
    assert (whole["object"], whole["usage"]["completion_tokens"]) == ("chat.completion", 2)
    streamed = call(
        client, "/v1/chat/completions", {"messages": messages, "stream": True, "max_completion_tokens": 2}
    )
    *chunks, done = events(streamed.text)
    assert [c["choices"][0]["delta"] for c in chunks] == [
        {"role": "assistant", "content": "o"},
        {"content": "k"},
    ]
    assert done == "data: [DONE]" and client.submitted[1].sampling.max_tokens == 2


def test_generate_speaks_the_native_shape() -> None:
    client = Scripted(spell("ab", "length"))
    body = {"input_ids": [7], "sampling_params": {"max_new_tokens": 2, "temperature": 0}, "rid": "rid-1"}
    answer = call(client, "/generate", body).json()
    assert answer["text"] == "ab" and answer["output_ids"] == TEXT.encode("ab")
    meta = {"id": "rid-1", "finish_reason": {"type": "length"}, "prompt_tokens": 1, "completion_tokens": 2}
    assert answer["meta_info"] == meta
    *chunks, done = events(call(client, "/generate", {"text": "q", "stream": True}).text)
    assert [c["text"] for c in chunks] == ["a", "ab"] and done == "data: [DONE]"
    assert client.submitted[1].sampling.max_tokens == 63


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_request_and_is_not_shown(stream: bool) -> None:
    client = Scripted(spell("hello ENDless", None))
    answer = call(
        client,
        "/v1/completions",
        {**PROMPT, "stop": ["END"], "stream": stream},
        headers={"X-Request-ID": "s"},
    )
    documents = events(answer.text)[:-1] if stream else [answer.json()]
    choices = [d["choices"][0] for d in documents]
    assert "".join(c["text"] for c in choices) == "hello " and choices[-1]["finish_reason"] == "stop"
    assert client.aborted == [("s", "stop")] and client.closed == 1


def test_a_false_start_of_a_stop_string_comes_with_the_end() -> None:
    answer = call(Scripted(spell("hello EN", "length")), "/v1/completions", {**PROMPT, "stop": "END"}).json()
    assert answer["choices"][0]["text"] == "hello EN" and answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "status"),
    [("kv_transfer_timeout", 504), ("queue_timeout", 503), ("aborted", 499), ("novel", 500)],
)
def test_a_failure_before_the_first_token_keeps_its_status(code: str, status: int, stream: bool) -> None:
    client = Scripted([Output(code=code, message="It broke.")])
    answer = call(client, "/v1/completions", {**PROMPT, "stream": stream}, headers={"X-Request-ID": "f"})
    assert answer.status_code == status and answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"] == "It broke." and answer.headers["x-request-id"] == "f"
    assert client.aborted == []


def test_a_failure_after_the_first_token_is_an_event_and_the_end() -> None:
    client = Scripted([*spell("a", None), Output(code="engine_failed", message="Rank 1 died.")])
    answer = call(client, "/v1/completions", {**PROMPT, "stream": True})
    first, error = events(answer.text)
    assert first["choices"][0]["text"] == "a"
    assert error["error"]["code"] == "engine_failed" and error["error"]["type"] == "server_error"


def test_headers_wait_for_the_first_token_and_chunks_do_not_wait_for_each_other() -> None:
    async def go() -> None:
        client = Scripted(spell("ab", "length"))
        client.gate_before = 0
        async with serving(app(client)) as http:
            asking = asyncio.create_task(stream_first(http))
            await until(lambda: client.submitted)
            assert not asking.done()
            client.gate, gate = asyncio.Event(), client.gate
            client.gate_before = 1
            gate.set()
            first = await asyncio.wait_for(asking, 10)
            assert b'"text":"a"' in first

    async def stream_first(http: httpx.AsyncClient) -> bytes:
        async with http.stream("POST", "/v1/completions", json={**PROMPT, "stream": True}) as response:
            return await anext(response.aiter_raw())

    asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [0, 1])
def test_a_client_that_leaves_aborts_its_request(stream: bool, after: int) -> None:
    async def go() -> None:
        client = Scripted(spell("a" * after, None) if after else [])
        async with serving(app(client)) as http:
            headers = {"X-Request-ID": "left"}
            request = http.build_request(
                "POST", "/v1/completions", json={**PROMPT, "stream": stream}, headers=headers
            )
            sending = asyncio.create_task(http.send(request, stream=True))
            await until(lambda: client.submitted)
            if stream and after:
                response = await sending
                await anext(response.aiter_raw())
                await response.aclose()
            else:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            await until(lambda: client.closed)
            assert client.aborted == [("left", "client")]

    asyncio.run(go())


def test_two_live_requests_never_share_an_id() -> None:
    async def go() -> None:
        client = Scripted(spell("a", "stop"))
        client.gate_before = 0
        async with serving(app(client)) as http:
            headers = {"X-Request-ID": "same"}
            asks = [
                asyncio.create_task(http.post("/v1/completions", json=PROMPT, headers=headers))
                for _ in range(3)
            ]
            await until(lambda: len(client.submitted) == 3)
            client.gate.set()
            answers = await asyncio.gather(*asks)
        ids = {a.headers["x-request-id"] for a in answers}
        assert len(ids) == 3 and "same" in ids and ids == {r.id for r in client.submitted}

    asyncio.run(go())
