"""What a body asks of the form of its answer becomes a grammar, or a 400 that says what is wrong."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from engine.text import grammar as g
from tests.engine.api.scripted import Scripted, call, spell

OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CHAT = {"messages": [{"role": "user", "content": "a"}]}
NAMED = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": OBJECT}}


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, g.of_schema({"type": "object"})),
        ({"response_format": NAMED}, g.of_schema(OBJECT)),
        ({"guided_json": OBJECT}, g.of_schema(OBJECT)),
        ({"guided_json": '{"type": "object"}'}, g.of_schema({"type": "object"})),
        ({"guided_regex": "a+"}, g.of_regex("a+")),
        ({"regex": "a+"}, g.of_regex("a+")),
        ({"guided_choice": ["a", "b"]}, g.of_choices(["a", "b"])),
        ({"structured_outputs": {"json": OBJECT}}, g.of_schema(OBJECT)),
        ({"structured_outputs": {"regex": "a", "json": None}}, g.of_regex("a")),
        ({"structured_outputs": {"choice": ["x"]}}, g.of_choices(["x"])),
    ],
)
def test_the_fields_of_openai_vllm_and_sglang(fields: dict[str, Any], grammar: str | None) -> None:
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", CHAT)):
        client = Scripted(spell("x"))
        assert call(client, path, body | fields).status_code == 200
        assert client.submitted[0].grammar == grammar


def test_generate_has_them_among_its_sampling_params() -> None:
    for params, grammar in (
        ({"json_schema": '{"type": "object"}'}, g.of_schema({"type": "object"})),
        ({"regex": "a"}, g.of_regex("a")),
    ):
        client = Scripted(spell("x"))
        assert call(client, "/generate", {"text": "a", "sampling_params": params}).status_code == 200
        assert client.submitted[0].grammar == grammar


def test_an_installation_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "engine.text.grammar")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    answer = call(Scripted(spell("x")), "/v1/completions", {"prompt": "a", "guided_regex": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_supported")
    assert call(Scripted(spell("x")), "/v1/completions", {"prompt": "a"}).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"guided_json": {"type": "objekt"}}, "guided_json", "Invalid type: objekt"),
        ({"guided_json": "{"}, "guided_json", "The JSON schema cannot be used"),
        ({"guided_json": 5}, "guided_json", "Expected"),
        ({"guided_regex": "("}, "guided_regex", "unclosed group"),
        ({"guided_choice": []}, "guided_choice", "a list of texts, none empty"),
        ({"guided_choice": ["a", ""]}, "guided_choice", "a list of texts, none empty"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "There are text, json_object and"),
        ({"response_format": {}}, "response_format.type", "not supported"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "needs"),
        ({"structured_outputs": {"grammar": "x"}}, "structured_outputs.grammar", "not supported"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json", "must be a JSON schema"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex", "must be text"),
        ({"guided_json": OBJECT, "guided_regex": "a"}, "guided_regex", "Send one"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "ends where it is complete"),
        ({"guided_grammar": "start: x"}, "guided_grammar", "not supported"),
        ({"ebnf": "root ::= x"}, "ebnf", "not supported"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_about_its_field(
    fields: dict[str, Any], param: str, says: str
) -> None:
    client = Scripted(spell("x"))
    for stream in (False, True):
        answer = call(client, "/v1/chat/completions", {**CHAT, **fields, "stream": stream})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], client.submitted) == (400, param, []), answer.text
        assert says in error["message"] and "\n" not in error["message"]
