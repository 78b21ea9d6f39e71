"""A stream that goes on after tokens of another engine: no client can tell from its events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.http.marks import take_mark
from tests.engine.api.scripted import TEXT, Output, Scripted, call

KNOWN = {"id": "r", "created": 7}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hello"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/generate": {"text": "hello"},
}


def answer(
    path: str, tokens: list[int], body: dict[str, Any], earlier: list[int]
) -> list[tuple[list[int], str]]:
    """(ids, data) of each event, from an engine that generates `tokens` after the `earlier` ones."""
    outputs = [Output([t], "length" if i == len(tokens) - 1 else None) for i, t in enumerate(tokens)]
    body = {**ROUTES[path], **body, "stream": True, "resumable": {**KNOWN, "tokens": earlier}}
    response = call(Scripted(outputs), path, body, headers={"X-Request-ID": "r"})
    assert response.status_code == 200, response.text
    out = []
    for event in response.content.split(b"\n\n")[:-1]:
        mark, data = take_mark(event + b"\n\n")
        out.append(([] if mark is None else mark.tokens, data.decode()))
    return out


TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from("abé€𝄞"), st.characters(codec="utf-8")), min_size=1, max_size=12
)


@pytest.mark.parametrize("path", ROUTES)
@settings(deadline=None, max_examples=40)
@given(TEXTS, st.lists(st.text(alphabet="abé€𝄞", min_size=1, max_size=3), max_size=2), st.integers(0, 99))
def test_the_events_after_a_cut_are_those_that_would_have_come(
    path: str, text: str, stops: list[str], cut: int
) -> None:
    """Half a character and half a stop string at the seam included."""
    tokens = TEXT.encode(text)
    body: dict[str, Any] = {
        "stop": stops,
        "max_tokens": len(tokens),
        "stream_options": {"include_usage": True},
    }
    if path == "/generate":
        body = {"sampling_params": {"stop": stops, "max_new_tokens": len(tokens)}}
    whole = answer(path, tokens, body, [])
    last = max(i for i, (ids, _) in enumerate(whole) if ids)
    kept = whole[: cut % (last + 1)]
    earlier = [t for ids, _ in kept for t in ids]
    assert earlier == tokens[: len(earlier)]
    assert kept + answer(path, tokens[len(earlier) :], body, earlier) == whole


def test_the_group_sees_a_longer_prompt_and_fewer_tokens_to_generate() -> None:
    for role, more in (("both", {}), ("prefill", {"bootstrap_room": 5})):
        client = Scripted([Output([70], "length")], role=role)
        body = {"prompt": "hello", "max_tokens": 9, "seed": 3, "stream": True, **more}
        call(client, "/v1/completions", {**body, "resumable": {**KNOWN, "tokens": [66, 67]}})
        (request,) = client.submitted
        assert request.prompt == [*TEXT.encode("hello"), 66, 67]
        assert (request.sampling.max_tokens, request.sampling.seed) == (7, 3)


@pytest.mark.parametrize(
    ("change", "param", "says"),
    [
        ({"tokens": [300]}, "resumable.tokens", "vocabulary"),
        ({"tokens": [-1]}, "resumable.tokens[0]", "Expected"),
        ({"tokens": "66"}, "resumable.tokens", "Expected"),
        ({"tokens": [66, 67, 68]}, "resumable.tokens", "leave nothing to generate of 3"),
        ({"tokens": [9]}, "resumable.tokens", "Token id 9 ends the output"),
        ({"tokens": [*TEXT.encode("xy")]}, "resumable.tokens", "stop string 'xy' ends the output"),
        ({"id": ""}, "resumable.id", "Expected"),
        ({"created": None}, "resumable.created", "Expected"),
    ],
)
def test_what_cannot_be_gone_on_with_is_a_400_that_names_it(
    change: dict[str, Any], param: str, says: str
) -> None:
    body = {"prompt": "a", "max_tokens": 3, "stop": "xy", "stop_token_ids": [9], "stream": True}
    response = call(Scripted(), "/v1/completions", {**body, "resumable": {**KNOWN, **change}})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert says in error["message"]


def test_an_answer_that_is_no_stream_does_not_go_on() -> None:
    body = {"prompt": "a", "max_tokens": 3, "resumable": {**KNOWN, "tokens": [66]}}
    error = call(Scripted(), "/v1/completions", body).json()["error"]
    assert (error["param"], error["code"]) == ("resumable.tokens", "invalid_request")
