"""Tool calls in a model's text, as Hermes and Qwen write them: `<tool_call>` JSON `</tool_call>`.

A call is {"name": …, "arguments": {…}} of a tool that was offered. What looks like one and is not stays text.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class ToolCall:
    """`arguments` is JSON text, as the OpenAI API has it."""

    name: str
    arguments: str


class ToolCalls:
    """Splits text that arrives in pieces into what is said and what is called; `names` are those offered."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names
        self._held = ""
        self._inside = False
        self._gap = ""  # white space behind a call: of the text only if text follows
        self.count = 0

    def add(self, text: str) -> list[str | ToolCall]:
        """What is certain with this text, in order."""
        self._held += text
        found: list[str | ToolCall] = []
        while True:
            mark = CLOSE if self._inside else OPEN
            at = self._held.find(mark)
            if at < 0:
                break
            part, self._held = self._held[:at], self._held[at + len(mark) :]
            self._take(part, found)
            self._inside = not self._inside
        if not self._inside:
            keep = _begun(self._held, OPEN)
            self._say(self._held[: len(self._held) - keep], found)
            self._held = self._held[len(self._held) - keep :]
        return found

    def finish(self) -> list[str | ToolCall]:
        """What was held back, at the end of the output: a call that was cut off is text."""
        found: list[str | ToolCall] = []
        self._say((OPEN if self._inside else "") + self._held, found)
        self._held, self._inside = "", False
        return found

    def _take(self, part: str, found: list[str | ToolCall]) -> None:
        """What stood before a mark."""
        if not self._inside:
            self._say(part, found)
            return
        call = _parsed(part, self._names)
        if call is None:
            self._say(OPEN + part + CLOSE, found)
            return
        self.count += 1
        self._gap = ""
        found.append(call)

    def _say(self, text: str, found: list[str | ToolCall]) -> None:
        if self.count and not text.strip():
            self._gap += text
        elif text:
            found.append(self._gap + text)
            self._gap = ""


def _parsed(text: str, names: Container[str]) -> ToolCall | None:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("name") not in names:
        return None
    arguments = document.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ToolCall(document["name"], json.dumps(arguments, ensure_ascii=False))


def _begun(text: str, mark: str) -> int:
    """Length of the longest end of `text` that is a start of `mark`, and not all of it."""
    sizes = range(min(len(mark) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(mark[:size])), 0)
