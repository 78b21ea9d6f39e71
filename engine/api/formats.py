"""The three shapes of an answer: completions, chat and the native one, whole and as stream chunks."""

from __future__ import annotations

import time
from typing import Any, Protocol

from engine.api.run import Piece


class Format(Protocol):
    """Shapes the answer of one request; chunks are asked for in order."""

    def whole(self, text: str, tokens: list[int], finish: str) -> dict[str, Any]: ...

    def chunk(self, piece: Piece) -> dict[str, Any] | None:
        """The document for one piece, None when there is nothing to say yet."""
        ...

    def last(self) -> dict[str, Any] | None:
        """A document after the last piece, if this format has one."""
        ...


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class _OpenAI:
    object = ""
    chunk_object = ""

    def __init__(self, id: str, model: str, prompt_tokens: int, include_usage: bool) -> None:
        self._head = {"id": id, "created": int(time.time()), "model": model}
        self._prompt_tokens = prompt_tokens
        self._include_usage = include_usage
        self._completion_tokens = 0

    def _choice(self, text: str, finish: str) -> dict[str, Any]:
        raise TypeError("a format defines its choices")

    def _delta(self, text: str, finish: str | None, first: bool) -> dict[str, Any]:
        raise TypeError("a format defines its choices")

    def whole(self, text: str, tokens: list[int], finish: str) -> dict[str, Any]:
        choice = {"index": 0, **self._choice(text, finish), "logprobs": None, "finish_reason": finish}
        usage = _usage(self._prompt_tokens, len(tokens))
        return {**self._head, "object": self.object, "choices": [choice], "usage": usage}

    def chunk(self, piece: Piece) -> dict[str, Any] | None:
        first = self._completion_tokens == 0
        self._completion_tokens += len(piece.tokens)
        if not piece.text and piece.finish is None and not first:
            return None
        delta = self._delta(piece.text, piece.finish, first)
        choice = {"index": 0, **delta, "logprobs": None, "finish_reason": piece.finish}
        document = {**self._head, "object": self.chunk_object, "choices": [choice]}
        return {**document, "usage": None} if self._include_usage else document

    def last(self) -> dict[str, Any] | None:
        if not self._include_usage:
            return None
        usage = _usage(self._prompt_tokens, self._completion_tokens)
        return {**self._head, "object": self.chunk_object, "choices": [], "usage": usage}


class CompletionFormat(_OpenAI):
    object = "text_completion"
    chunk_object = "text_completion"

    def _choice(self, text: str, finish: str) -> dict[str, Any]:
        return {"text": text}

    def _delta(self, text: str, finish: str | None, first: bool) -> dict[str, Any]:
        return {"text": text}


class ChatFormat(_OpenAI):
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def _choice(self, text: str, finish: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def _delta(self, text: str, finish: str | None, first: bool) -> dict[str, Any]:
        delta: dict[str, Any] = {"role": "assistant"} if first else {}
        if text or first:
            delta["content"] = text
        return {"delta": delta}


class GenerateFormat:
    """SGLang's shape: every stream chunk carries the whole text and all tokens so far."""

    def __init__(self, id: str, model: str, prompt_tokens: int, include_usage: bool) -> None:
        self._id = id
        self._prompt_tokens = prompt_tokens
        self._text = ""
        self._tokens: list[int] = []

    def _document(self, text: str, tokens: list[int], finish: str | None) -> dict[str, Any]:
        meta = {
            "id": self._id,
            "finish_reason": None if finish is None else {"type": finish},
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": len(tokens),
        }
        return {"text": text, "output_ids": tokens, "meta_info": meta}

    def whole(self, text: str, tokens: list[int], finish: str) -> dict[str, Any]:
        return self._document(text, tokens, finish)

    def chunk(self, piece: Piece) -> dict[str, Any] | None:
        self._text += piece.text
        self._tokens.extend(piece.tokens)
        return self._document(self._text, self._tokens, piece.finish)

    def last(self) -> dict[str, Any] | None:
        return None
