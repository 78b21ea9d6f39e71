"""A chat's answer in which the model may call tools: text and calls told apart, whole or as stream chunks."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from engine.api.formats import ChatFormat, Head
from engine.api.run import Piece
from engine.text.toolcalls import ToolCall, ToolCalls


class CalledFormat(ChatFormat):
    """Each call is sent in one piece, once it is complete."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._readers: dict[int, ToolCalls] = defaultdict(lambda: ToolCalls(head.calls))
        self._readers[0].add(head.text)

    def _choice(self, piece: Piece, index: int) -> dict[str, Any]:
        text, calls = self._read(piece, index)
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
        return {"message": message | ({"tool_calls": calls} if calls else {}), **self._finish(piece, index)}

    def _delta(self, piece: Piece, index: int, first: bool) -> dict[str, Any] | None:
        text, calls = self._read(piece, index)
        delta: dict[str, Any] = {"role": "assistant", "content": text} if first else {}
        if text:
            delta["content"] = text
        if calls:
            before = self._readers[index].count - len(calls)
            delta["tool_calls"] = [{"index": before + at, **call} for at, call in enumerate(calls)]
        return {"delta": delta, **self._finish(piece, index)} if delta or piece.finish else None

    def _read(self, piece: Piece, index: int) -> tuple[str, list[dict[str, Any]]]:
        """New text and new calls; text behind a call is put with the text before it."""
        reader = self._readers[index]
        found: Sequence[str | ToolCall] = reader.add(piece.text) + (reader.finish() if piece.finish else [])
        calls = [_document(call) for call in found if isinstance(call, ToolCall)]
        return "".join(part for part in found if isinstance(part, str)), calls

    def _finish(self, piece: Piece, index: int) -> dict[str, Any]:
        called = piece.finish == "stop" and self._readers[index].count
        return {"finish_reason": "tool_calls"} if called else {}


def _document(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}
