"""Several answers to one prompt: whole and streamed, counted once and together, ended together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from engine.api.samples import samples_of
from engine.core.types import Logprob, Request, Sampling
from tests.engine.api.scripted import TEXT, Output, Scripted, app, call, serving, spell, until

BODY: dict[str, Any] = {"prompt": "hello", "n": 3, "seed": 5, "temperature": 1}


class Several(Scripted):
    """Spells another text for each sample; `slow` samples wait for the gate before their end."""

    def __init__(self, *texts: str, slow: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.texts, self.slow = texts, slow

    async def submit(self, request: Request) -> AsyncGenerator[Output, None]:
        self.submitted.append(request)
        index = int(request.id.rpartition(".")[2]) if "." in request.id else 0
        try:
            for output in spell(self.texts[index], "length"):
                if index in self.slow and output.finish:
                    await self.gate.wait()
                await asyncio.sleep(0)
                yield output
        finally:
            self.closed += 1


def test_whole_answers_have_their_index_and_one_usage() -> None:
    client = Several("ab", "cde", "f")
    body = call(client, "/v1/completions", BODY, headers={"X-Request-ID": "r"}).json()
    assert [(c["index"], c["text"], c["finish_reason"]) for c in body["choices"]] == [
        (0, "ab", "length"), (1, "cde", "length"), (2, "f", "length"),
    ]  # fmt: skip
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert [(r.id, r.sampling.seed) for r in client.submitted] == [("r", 5), ("r.1", 6), ("r.2", 7)]
    assert {tuple(r.prompt) for r in client.submitted} == {tuple(TEXT.encode("hello"))}


def test_a_stream_interleaves_them_by_index() -> None:
    body = {"messages": [{"role": "user", "content": "q"}], "n": 2, "stream": True}
    body["stream_options"] = {"include_usage": True}
    answer = call(Several("ab", "cde"), "/v1/chat/completions", body)
    parts = [p.removeprefix("data: ") for p in answer.text.split("\n\n") if p]
    assert parts.pop() == "[DONE]"
    *chunks, usage = [json.loads(part) for part in parts]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 5
    for index, text in enumerate(("ab", "cde")):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert "".join(c["delta"]["content"] for c in own) == text
        assert [c["delta"].get("role") for c in own] == ["assistant"] + [None] * (len(own) - 1)
        assert [c["finish_reason"] for c in own] == [None] * (len(own) - 1) + ["length"]
    assert len({c["id"] for c in chunks}) == 1


def test_log_probabilities_of_each_count_from_its_own_beginning() -> None:
    client = Several("ab", "cd")
    scripted = client.submit

    async def submit(request: Request) -> AsyncGenerator[Output, None]:
        async for out in scripted(request):
            yield Output(out.tokens, out.finish, logprobs=[Logprob(-1.0)] * len(out.tokens))

    client.submit = submit  # type: ignore[method-assign]
    body = call(client, "/v1/completions", {"prompt": "x", "n": 2, "logprobs": 0}).json()
    assert [c["logprobs"]["text_offset"] for c in body["choices"]] == [[0, 1], [0, 1]]


def test_one_that_fails_ends_the_others_and_the_answer() -> None:
    client = Several("ab", "cd", slow=(0,))
    scripted = client.submit

    async def submit(request: Request) -> AsyncGenerator[Output, None]:
        async for out in scripted(request):
            yield Output(code="kv_corrupt", message="Bits.") if request.id.endswith(".1") else out

    client.submit = submit  # type: ignore[method-assign]
    answer = call(client, "/v1/completions", {"prompt": "x", "n": 2}, headers={"X-Request-ID": "r"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "kv_corrupt")
    assert ("r", "client") in client.aborted and client.closed == 2


def test_a_client_that_leaves_ends_them_all() -> None:
    client = Several("ab", "cd", slow=(0, 1))

    async def go() -> None:
        async with serving(app(client)) as http:
            body = {"prompt": "x", "n": 2, "stream": True}
            async with http.stream("POST", "/v1/completions", json=body, headers={"X-Request-ID": "r"}) as r:
                await anext(r.aiter_raw())
            await until(lambda: client.closed == 2)
            assert sorted(client.aborted) == [("r", "client"), ("r.1", "client")]

    asyncio.run(go())


@pytest.mark.parametrize("room", [0, 5, 2**63 - 1])
def test_both_legs_derive_the_same_distinct_rooms(room: int) -> None:
    request = Request(id="r", prompt=[1], sampling=Sampling(), room=room)
    rooms = [each.room for each in samples_of(request, 64)]
    assert rooms[0] == room and len(set(rooms)) == 64 and all(r is not None and 0 <= r < 2**63 for r in rooms)
    assert {each.sampling for each in samples_of(request, 64)} == {Sampling()}


def test_a_stream_of_several_is_not_one_that_another_engine_can_go_on_with() -> None:
    resumable = {"id": "c", "created": 1, "tokens": []}
    answer = call(
        Several("ab", "cd"), "/v1/completions", {**BODY, "n": 2, "stream": True, "resumable": resumable}
    )
    assert answer.status_code == 200 and ": tokens" not in answer.text
    refused = call(
        Several(), "/v1/completions", {**BODY, "stream": True, "resumable": {**resumable, "tokens": [3]}}
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "resumable.tokens")
