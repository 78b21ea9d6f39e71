"""Tools of a chat: shown to the template, calls told apart in the answer, forced, and refused by name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from engine.api import build_app
from engine.text import grammar as g
from engine.text.model import TextModel
from engine.text.template import ChatTemplate
from tests.engine.api.scripted import TEXT, Scripted, spell

TEMPLATE = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %};{% endfor %}"
)
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
NOW = {"type": "function", "function": {"name": "now"}}
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "q"}], "tools": [ADD, NOW]}
ONE = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def chat(client: Scripted, body: dict[str, Any], template: str = TEMPLATE) -> httpx.Response:
    text = TextModel(TEXT._tokenizer, ChatTemplate(template, {}))
    client.info = type(client.info)(max_model_len=4096)

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(build_app(client, text, None, None))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            return await http.post("/v1/chat/completions", json=body)

    return asyncio.run(go())


def prompt(client: Scripted) -> str:
    return TEXT.decode(client.submitted[-1].prompt)


@pytest.mark.parametrize(("choice", "shown"), [(None, "[add][now]"), ("auto", "[add][now]"), ("none", "")])
def test_tools_are_the_templates_to_show(choice: str | None, shown: str) -> None:
    client = Scripted(spell("x"))
    assert chat(client, {**BODY, "tool_choice": choice}).status_code == 200
    assert prompt(client) == f"{shown}user:q;" and client.submitted[0].grammar is None


def test_a_conversation_with_calls_and_results_is_rendered() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        *BODY["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]
    client = Scripted(spell("x"))
    assert chat(client, {**BODY, "messages": messages}).status_code == 200
    assert prompt(client).endswith(
        'assistant:<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>;tool:2;'
    )


def test_calls_are_told_apart_from_the_text() -> None:
    (choice,) = chat(Scripted(spell(f"Well.\n{ONE}\n{ONE}", "stop")), BODY).json()["choices"]
    first, second = choice["message"]["tool_calls"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Well.\n", "tool_calls")
    assert first["function"] == {"name": "add", "arguments": '{"a": 1}'} and first["type"] == "function"
    assert first["id"] != second["id"]
    (choice,) = chat(Scripted(spell(ONE, "stop")), {**BODY, "tool_choice": "none"}).json()["choices"]
    assert choice["message"] == {"role": "assistant", "content": ONE} and choice["finish_reason"] == "stop"


def test_a_streamed_call_is_one_delta() -> None:
    body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
    answer = chat(Scripted(spell(f"Hm {ONE}{ONE}", "stop")), body)
    parts = [p.removeprefix("data: ") for p in answer.text.split("\n\n") if p]
    chunks = [json.loads(p)["choices"][0] for p in parts[:-2]]
    deltas = [chunk["delta"] for chunk in chunks]
    assert "".join(d.get("content") or "" for d in deltas) == "Hm "
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [(c["index"], c["function"]["arguments"]) for c in calls] == [(0, '{"a": 1}'), (1, '{"a": 1}')]
    assert chunks[-1]["finish_reason"] == "tool_calls" and deltas[0]["role"] == "assistant"
    assert json.loads(parts[-2])["usage"]["completion_tokens"] == len(TEXT.encode(f"Hm {ONE}{ONE}"))


def test_a_stream_that_goes_on_elsewhere_knows_what_was_called() -> None:
    earlier = TEXT.encode(f"{ONE}<tool_ca")
    body = {**BODY, "stream": True, "resumable": {"id": "c", "created": 1, "tokens": earlier}}
    answer = chat(Scripted(spell(ONE.removeprefix("<tool_ca"), "stop")), {**body, "max_tokens": 999})
    chunks = [json.loads(p.partition("data: ")[2]) for p in answer.text.split("\n\n") if "data: {" in p]
    (call,) = [c for chunk in chunks for c in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert (call["index"], chunks[-1]["choices"][0]["finish_reason"]) == (1, "tool_calls")


def test_a_forced_call_follows_a_grammar() -> None:
    for choice, names in (
        ("required", ["add", "now"]),
        ({"type": "function", "function": {"name": "now"}}, ["now"]),
    ):
        client = Scripted(spell(ONE, "stop"))
        assert chat(client, {**BODY, "tool_choice": choice}).status_code == 200
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": name},
                    "arguments": {"$id": f"tool:{name}", "type": "object"},
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for name in names
        ]
        assert client.submitted[0].grammar == g.of_call({"anyOf": calls}) and prompt(client).startswith(
            "[add][now]"
        )


def test_parameters_of_a_forced_call_may_refer_to_what_they_define() -> None:
    """As every library writes nested types; a reference is to the parameters, not to the call around them."""
    parameters = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place"}, "next": {"$ref": "#"}},
        "required": ["at"],
        "$defs": {"Place": {"type": "integer"}},
    }
    tools = [
        {"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("go", "stay")
    ]
    client = Scripted(spell(ONE, "stop"))
    answer = chat(client, {**BODY, "tools": tools, "tool_choice": "required"})
    assert answer.status_code == 200 and client.submitted[0].grammar, answer.text


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tools": [], "tool_choice": "required"}, "tool_choice", "invalid_request"),
        (
            {"tools": None, "tool_choice": {"type": "function", "function": {"name": "add"}}},
            "tool_choice",
            None,
        ),
        ({"tool_choice": "always"}, "tool_choice", "invalid_request"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "invalid_request"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "rm"}}},
            "tool_choice.function.name",
            None,
        ),
        ({"tools": ["add"]}, "tools[0]", "invalid_request"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0]", "not_supported"),
        ({"tools": [ADD, {"type": "function", "function": {"name": "a b"}}]}, "tools[1].function.name", None),
        ({"tools": [ADD, ADD]}, "tools", "invalid_request"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]},
            "tools[0].function.parameters",
            None,
        ),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}],
                "tool_choice": "required",
            },
            "tool_choice",
            "invalid_request",
        ),
        (
            {"tool_choice": "required", "response_format": {"type": "json_object"}},
            "tool_choice",
            "invalid_request",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]},
            "messages[0].tool_calls[0].function",
            None,
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
            None,
        ),
        ({"messages": [{"role": "tool"}]}, "messages[0].content", None),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, code: str | None) -> None:
    answer = chat(Scripted(spell("x")), BODY | fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), answer.text
    assert error["code"] == (code or "invalid_request")


def test_a_model_whose_template_knows_no_tools_or_no_calls_says_so() -> None:
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    answer = chat(Scripted(spell("x")), BODY, plain)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_supported")
    other = "{{ tools | tojson }}" + plain
    client = Scripted(spell(ONE, "stop"))
    (choice,) = chat(client, BODY, other).json()["choices"]
    assert choice["message"]["content"] == ONE, "how it writes calls is not known, so they are text"
    answer = chat(Scripted(spell("x")), {**BODY, "tool_choice": "required"}, other)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool_choice")
