"""Tool calls in a model's text, as Hermes and Qwen write them: `<tool_call>` JSON `</tool_call>`.

A call is {"name": …, "arguments": {…}} of a tool that was offered. What looks like one and is not stays text.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, NoReturn

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
        self._quoted = 0  # up to where closing marks of a call are in a string of its JSON
        self._gap = ""  # white space behind a call: of the text only if text follows
        self.count = 0

    def add(self, text: str) -> list[str | ToolCall]:
        """What is certain with this text, in order."""
        self._held += text
        found: list[str | ToolCall] = []
        while True:
            mark = CLOSE if self._inside else OPEN
            at = self._held.find(mark, self._quoted)
            if at < 0:
                break
            if self._inside:
                self._close(at, found)
            else:
                self._say(self._cut(at, OPEN), found)
                self._inside = True
        if not self._inside:
            keep = _begun(self._held, OPEN)
            self._say(self._held[: len(self._held) - keep], found)
            self._held = self._held[len(self._held) - keep :]
        return found

    def finish(self) -> list[str | ToolCall]:
        """What was held back, at the end of the output: a call that was cut off is text."""
        found: list[str | ToolCall] = []
        while self._quoted:  # the string did not end, so the first mark was the call's
            self._refuse(found)
            found += self.add("")
        self._say((OPEN if self._inside else "") + self._held, found)
        self._held, self._inside = "", False
        return found

    def _close(self, at: int, found: list[str | ToolCall]) -> None:
        """A closing mark at `at`: of the call, or of a string in it."""
        try:
            call = _parsed(self._held[:at], self._names)
        except _OpenString:
            self._quoted = at + len(CLOSE)
            return
        if call is None:
            self._refuse(found)
            return
        self._cut(at, CLOSE)
        self._inside, self._quoted, self._gap = False, 0, ""
        self.count += 1
        found.append(call)

    def _refuse(self, found: list[str | ToolCall]) -> None:
        """What ends at the first mark is no call."""
        self._say(OPEN + self._cut(self._held.find(CLOSE), CLOSE) + CLOSE, found)
        self._inside, self._quoted = False, 0

    def _cut(self, at: int, mark: str) -> str:
        """Take what is before the mark at `at`, and the mark, from what is held."""
        part, self._held = self._held[:at], self._held[at + len(mark) :]
        return part

    def _say(self, text: str, found: list[str | ToolCall]) -> None:
        said = text
        if self.count:
            text = self._gap + text
            said = text.rstrip()
            self._gap = text[len(said) :]
        if said:
            found.append(said)


class _OpenString(ValueError):
    """JSON that ends within a string."""


def _parsed(text: str, names: Container[str]) -> ToolCall | None:
    try:
        document: Any = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string"):
            raise _OpenString from None
        return None
    name = document.get("name") if isinstance(document, dict) else None
    arguments = document.get("arguments", {}) if isinstance(name, str) and name in names else None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    written = json.dumps(arguments, ensure_ascii=False)
    # Half a character, as "\\ud800" is, has no UTF-8: it stays an escape.
    return ToolCall(name, written if _has_bytes(written) else json.dumps(arguments))


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is Python's and not JSON's")


def _has_bytes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _begun(text: str, mark: str) -> int:
    """Length of the longest end of `text` that is a start of `mark`, and not all of it."""
    sizes = range(min(len(mark) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(mark[:size])), 0)
