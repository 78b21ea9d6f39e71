"""Calls in a model's text: told apart however it is cut, and text where they are none."""

from __future__ import annotations

import random

import pytest

from engine.text.toolcalls import ToolCall, ToolCalls

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "é"}}\n</tool_call>'
ADD = ToolCall("add", '{"a": 1, "b": "é"}')
NOT_OFFERED = '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'
NO_NAME = '<tool_call>{"name": ["add"]}</tool_call><tool_call>{"name": {"add": 1}}</tool_call>'
NO_JSON = '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>'
MARK_IN_A_STRING = (
    '<tool_call>{"name": "add", "arguments": {"a": "</tool_call> \\" <tool_call>"}}</tool_call>'
)
OPEN_STRING = '<tool_call>{"name": "add</tool_call>'
HALF_A_CHARACTER = '<tool_call>{"name": "add", "arguments": {"a": "é\\ud800"}}</tool_call>'
NO_ARGUMENTS = '<tool_call>{"name": "add", "arguments": [1]}</tool_call>'
CASES: list[tuple[str, list[str | ToolCall]]] = [
    ("plain text", ["plain text"]),
    (CALL, [ADD]),
    (f"I will add.\n{CALL}", ["I will add.\n", ADD]),
    (f"{CALL}\n{CALL}\n", [ADD, ADD]),
    (f"{CALL}\n and more", [ADD, "\n and more"]),
    (f" \n{CALL}", [" \n", ADD]),
    ('<tool_call>{"name": "add"}</tool_call>', [ToolCall("add", "{}")]),
    ("<tool_call>no json</tool_call>", ["<tool_call>no json</tool_call>"]),
    (NOT_OFFERED, [NOT_OFFERED]),
    (NO_ARGUMENTS, [NO_ARGUMENTS]),
    (NO_NAME, [NO_NAME]),
    (NO_JSON, [NO_JSON]),
    (MARK_IN_A_STRING, [ToolCall("add", '{"a": "</tool_call> \\" <tool_call>"}')]),
    (f"{OPEN_STRING} {CALL} so", [f"{OPEN_STRING} ", ADD, " so"]),
    (OPEN_STRING, [OPEN_STRING]),
    (OPEN_STRING * 2, [OPEN_STRING * 2]),
    (HALF_A_CHARACTER, [ToolCall("add", '{"a": "\\u00e9\\ud800"}')]),
    (f"{CALL}\n one \n", [ADD, "\n one"]),
    ('<tool_call>{"name": "add"', ['<tool_call>{"name": "add"']),
    ("a < b <tool", ["a < b <tool"]),
    ("</tool_call>", ["</tool_call>"]),
]  # fmt: skip


def joined(parts: list[str | ToolCall]) -> list[str | ToolCall]:
    out: list[str | ToolCall] = []
    for part in parts:
        if isinstance(part, str) and out and isinstance(out[-1], str):
            out[-1] += part
        else:
            out.append(part)
    return out


@pytest.mark.parametrize(("text", "want"), CASES, ids=range(len(CASES)))
def test_however_it_is_cut(text: str, want: list[str | ToolCall]) -> None:
    for seed in range(8):
        calls, found, at, draw = ToolCalls({"add"}), list[str | ToolCall](), 0, random.Random(seed)
        while at < len(text):
            size = draw.randint(1, 1 + seed * 3)
            found += calls.add(text[at : at + size])
            at += size
        found += calls.finish()
        assert joined(found) == want and calls.count == sum(isinstance(part, ToolCall) for part in want)


def test_text_is_not_held_longer_than_it_must() -> None:
    calls = ToolCalls({"add"})
    assert calls.add("a <tool_") == ["a "] and calls.add("box>") == ["<tool_box>"]
