"""Bodies that are wrong get a 400 that names the field; bodies full of neutral defaults pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api.schema import ChatBody, CompletionBody, GenerateBody
from tests.engine.api.scripted import Scripted, call, spell
from tests.examples import examples

WRONG: list[tuple[dict[str, Any], str | None, str]] = [
    ({}, "prompt", "invalid_request"),
    ({"prompt": 5}, "prompt", "invalid_request"),
    ({"prompt": ""}, "prompt", "invalid_request"),
    ({"prompt": []}, "prompt", "invalid_request"),
    ({"prompt": [1, "a"]}, "prompt", "invalid_request"),
    ({"prompt": ["a", "b"]}, "prompt", "not_supported"),
    ({"prompt": [[1], [2]]}, "prompt", "not_supported"),
    ({"prompt": [-1]}, "prompt[0]", "invalid_request"),
    ({"prompt": [257]}, "prompt", "invalid_request"),
    ({"prompt": "a" * 64}, None, "context_length_exceeded"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens", "invalid_request"),
    ({"prompt": "a", "max_tokens": "5"}, "max_tokens", "invalid_request"),
    ({"prompt": "a", "max_tokens": True}, "max_tokens", "invalid_request"),
    ({"prompt": "a", "max_tokens": 10**30}, "max_tokens", "invalid_request"),
    ({"prompt": "a", "temperature": -0.1}, "temperature", "invalid_request"),
    ({"prompt": "a", "top_p": 0}, "top_p", "invalid_request"),
    ({"prompt": "a", "seed": 2**63}, "seed", "invalid_request"),
    ({"prompt": "a", "stop": ""}, "stop", "invalid_request"),
    ({"prompt": "a", "stop": ["x"] * 17}, "stop", "invalid_request"),
    ({"prompt": "a", "stream": "yes"}, "stream", "invalid_request"),
    (
        {"prompt": "a", "stream_options": {"include_usage": 1}},
        "stream_options.include_usage",
        "invalid_request",
    ),
    ({"prompt": "a", "n": 0}, "n", "invalid_request"),
    ({"prompt": "a", "n": 65}, "n", "invalid_request"),
    ({"prompt": "a", "n": 2, "best_of": 3}, "best_of", "not_supported"),
    ({"prompt": "a", "logprobs": 21}, "logprobs", "invalid_request"),
    ({"prompt": "a", "logprobs": True}, "logprobs", "invalid_request"),
    ({"prompt": "a", "top_logprobs": 1}, "top_logprobs", "not_supported"),
    ({"prompt": "a", "min_tokens": 3}, "min_tokens", "not_supported"),
    ({"prompt": "a", "echo": True}, "echo", "not_supported"),
    ({"prompt": "a", "presence_penalty": 0.5}, "presence_penalty", "not_supported"),
]


@pytest.mark.parametrize(("body", "param", "code"), WRONG)
def test_a_wrong_completion_is_refused_by_name(body: dict[str, Any], param: str | None, code: str) -> None:
    client = Scripted(spell("x"))
    answer = call(client, "/v1/completions", body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)
    assert error["type"] == "invalid_request_error" and client.submitted == []


@pytest.mark.parametrize(
    ("messages", "param", "code"),
    [
        ([], "messages", "invalid_request"),
        ("hi", "messages", "invalid_request"),
        ([{"content": "x"}], "messages[0].role", "invalid_request"),
        ([{"role": 5, "content": "x"}], "messages[0].role", "invalid_request"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role", "invalid_request"),
        ([{"role": "usr", "content": "x"}], "messages[0].role", "invalid_request"),
        ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "messages[0].role", "not_supported"),
        ([{"role": "function", "content": "x", "name": "f"}], "messages[0].role", "not_supported"),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
            "messages[0].tool_calls",
            "not_supported",
        ),
        (
            [{"role": "assistant", "content": "x", "function_call": {"name": "f"}}],
            "messages[0].function_call",
            "not_supported",
        ),
        ([{"role": "user", "content": 5}], "messages[0].content", "invalid_request"),
        ([{"role": "user", "content": None}], "messages[0].content", "invalid_request"),
        ([{"role": "user"}], "messages[0].content", "invalid_request"),
        ([{"role": "assistant", "content": None}], "messages[0].content", "invalid_request"),
        ([{"role": "user", "content": []}], "messages[0].content", "invalid_request"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content", "not_supported"),
    ],
)
def test_a_wrong_conversation_is_refused_by_name(messages: Any, param: str, code: str) -> None:
    answer = call(Scripted(spell("x")), "/v1/chat/completions", {"messages": messages})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 2}, "logprobs"),
    ],
)
def test_wrong_logprobs_of_a_chat_are_refused_by_name(options: dict[str, Any], param: str) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], **options}
    answer = call(Scripted(spell("x")), "/v1/chat/completions", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": ["a", "b"]}, "text"),
        ({"input_ids": []}, "input_ids"),
        ({"text": "a", "sampling_params": {"max_new_tokens": 0}}, "sampling_params.max_new_tokens"),
        ({"text": "a", "sampling_params": {"n": 2}}, "sampling_params.n"),
        ({"text": "a", "return_logprob": True}, "return_logprob"),
        ({"text": "a", "sampling_params": {"min_new_tokens": 2}}, "sampling_params.min_new_tokens"),
    ],
)
def test_a_wrong_generate_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    answer = call(Scripted(spell("x")), "/generate", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_an_option_that_would_change_the_answer_is_refused_on_every_route() -> None:
    options: dict[str, Any] = {
        "best_of": 2,
        "echo": True,
        "suffix": "x",
        "presence_penalty": -0.5,
        "frequency_penalty": 1,
        "logit_bias": {"50": 100},
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "required",
        "functions": [{"name": "f"}],
        "function_call": {"name": "f"},
        "modalities": ["text", "audio"],
        "audio": {"voice": "a"},
        "web_search_options": {},
        "chat_template_kwargs": {"enable_thinking": False},
        "guided_json": {"type": "object"},
        "skip_special_tokens": False,
        "stop_regex": "x+",
    }
    bodies: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": "a"},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
        "/generate": {"text": "a"},
    }
    client = Scripted(spell("x"))
    for path, body in bodies.items():
        for name, value in options.items():
            if path != "/generate" and name in ("response_format", "guided_json"):
                continue
            if path == "/v1/chat/completions" and name in ("tools", "tool_choice"):
                continue
            answer = call(client, path, body | {name: value})
            error = answer.json()["error"]
            said = (answer.status_code, error["param"], error["code"], error["type"])
            assert said == (400, name, "not_supported", "invalid_request_error"), (path, answer.text)
            assert error["message"].startswith(f"{name} is not supported. Leave it out")
    assert client.submitted == []


def test_roles_reach_the_template_by_the_names_it_knows() -> None:
    client = Scripted(spell("x"))
    prompts = []
    for first in ("system", "developer"):
        messages = [{"role": first, "content": "Be short."}, {"role": "user", "content": ""}]
        messages += [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}]
        assert call(client, "/v1/chat/completions", {"messages": messages}).status_code == 200
        prompts.append(client.submitted[-1].prompt)
    assert prompts[0] == prompts[1]


def test_what_the_public_router_adds_is_ignored() -> None:
    null = ("bootstrap_host", "bootstrap_port", "bootstrap_room", "stop", "seed", "max_tokens", "temperature")
    null += ("top_p", "stream", "top_logprobs", "frequency_penalty", "logit_bias")
    off = ("no_stop_trim", "ignore_eos", "log_metrics", "background", "logprobs", "echo", "stream_reasoning")
    neutral = {"n": 1, "best_of": 1, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0.0}
    defaults: dict[str, Any] = {**dict.fromkeys(null), **dict.fromkeys(off, False), **neutral}
    defaults |= {"top_k": -1, "model": "unknown", "user": "u", "response_format": {"type": "text"}}
    defaults |= {"tools": [], "tool_choice": "auto", "skip_special_tokens": True, "separate_reasoning": True}
    defaults |= {"metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True}
    assert call(Scripted(spell("x")), "/v1/completions", {"prompt": "a", **defaults}).status_code == 200
    chat = {"messages": [{"role": "user", "content": "a"}], **defaults}
    assert call(Scripted(spell("x")), "/v1/chat/completions", chat).status_code == 200
    generate = {"text": "a", "model": None, "sampling_params": {"n": 1, "top_k": -1, "stop": None}}
    assert call(Scripted(spell("x")), "/generate", generate).status_code == 200


def test_an_engine_that_is_starting_says_so() -> None:
    client = Scripted(spell("x"))
    client.info = type(client.info)(max_model_len=0)
    answer = call(client, "/v1/completions", {"prompt": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
BODIES = (CompletionBody, ChatBody, GenerateBody)
names = st.sampled_from(sorted({f for body in BODIES for f in body.__struct_fields__} | {"n", "logit_bias"}))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate"])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.dictionaries(names, anything, max_size=5))
def test_no_body_makes_the_server_fail(path: str, body: dict[str, Any]) -> None:
    answer = call(Scripted(spell("x")), path, body)
    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        assert set(answer.json()["error"]) == {"message", "type", "code", "param"}
