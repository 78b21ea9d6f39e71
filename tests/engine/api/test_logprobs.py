"""Log probabilities in the two OpenAI shapes, whole and streamed, from a scripted group."""

from __future__ import annotations

import json
from typing import Any

from engine.core.types import Logprob
from tests.engine.api.scripted import TEXT, Output, Scripted, call

TOKENS = TEXT.encode("né!")  # four byte tokens: é is two
OTHER = TEXT.encode("?")[0]


def script() -> list[Output]:
    logprobs = [Logprob(-0.5 - i, [(t, -0.5 - i), (OTHER, -3.0)]) for i, t in enumerate(TOKENS)]
    last = len(TOKENS) - 1
    return [
        Output([t], "length" if i == last else None, logprobs=[logprobs[i]]) for i, t in enumerate(TOKENS)
    ]


def choices(path: str, body: dict[str, Any], client: Scripted | None = None) -> list[dict[str, Any]]:
    """The choice of the answer, or one of each event of a stream."""
    answer = call(client or Scripted(script()), path, body)
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        return [answer.json()["choices"][0]]
    parts = [p.removeprefix("data: ") for p in answer.text.split("\n\n") if p and "[DONE]" not in p]
    return [json.loads(p)["choices"][0] for p in parts]


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The lists of the logprobs of several events, put together."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, values in part["logprobs"].items():
            found.setdefault(key, []).extend(values)
    return found


def test_a_completion_has_each_tokens_own_and_the_likeliest() -> None:
    client = Scripted(script())
    (choice,) = choices("/v1/completions", {"prompt": "a", "logprobs": 2}, client)
    assert client.submitted[0].sampling.logprobs == 2
    assert choice["logprobs"] == {
        "tokens": ["n", "\ufffd", "\ufffd", "!"],
        "token_logprobs": [-0.5, -1.5, -2.5, -3.5],
        "top_logprobs": [
            {"n": -0.5, "?": -3.0},
            {"\ufffd": -1.5, "?": -3.0},
            {"\ufffd": -2.5, "?": -3.0},
            {"!": -3.5, "?": -3.0},
        ],
        "text_offset": [0, 1, 2, 3],
    }


def test_a_chat_has_entries_with_bytes() -> None:
    client = Scripted(script())
    body = {"messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": 2}
    (choice,) = choices("/v1/chat/completions", body, client)
    assert client.submitted[0].sampling.logprobs == 2
    content = choice["logprobs"]["content"]
    other = {"token": "?", "logprob": -3.0, "bytes": [63]}
    own = {"token": "n", "logprob": -0.5, "bytes": [110]}
    assert content[0] == {**own, "top_logprobs": [own, other]}
    assert [entry["bytes"] for entry in content] == [[110], None, None, [33]]


def test_a_stream_carries_every_tokens_logprobs_once_also_while_its_text_is_held_back() -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "a", "logprobs": 2, "stop": "!?"}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": 2},
        ),
    ):
        whole, events = choices(path, body), choices(path, {**body, "stream": True})
        assert joined(events) == whole[0]["logprobs"]
        assert len(events) == len(TOKENS)


def test_nobody_gets_what_they_did_not_ask_for() -> None:
    client = Scripted(script())
    (choice,) = choices("/v1/completions", {"prompt": "a"}, client)
    assert client.submitted[0].sampling.logprobs is None and choice["logprobs"] is None
    zero = Scripted(script())
    choices("/v1/completions", {"prompt": "a", "logprobs": 0}, zero)
    assert zero.submitted[0].sampling.logprobs == 0
