"""The three shapes of an answer: completions, chat and the native one, whole and as stream chunks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from engine.api.logprobs import LogprobView
from engine.api.run import Piece


@dataclass(frozen=True)
class Head:
    """What is the same in all documents of one answer. `created` is Unix seconds.

    `text` and `tokens` are what the client had of the output before this engine went on with it; `calls` the
    functions whose calls are told apart from the text.
    """

    id: str
    model: str
    created: int
    prompt_tokens: int
    include_usage: bool
    text: str = ""
    tokens: Sequence[int] = ()
    logprobs: LogprobView | None = None
    calls: frozenset[str] = frozenset()


class Format(Protocol):
    """Shapes the answer of one request; chunks are asked for in order."""

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The one document of an answer, of whose samples each is one piece."""
        ...

    def chunk(self, piece: Piece, index: int = 0) -> dict[str, Any] | None:
        """The document for one piece of sample `index`, None when there is nothing to say yet."""
        ...

    def last(self) -> dict[str, Any] | None:
        """A document after the last piece, if this format has one."""
        ...


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class _OpenAI:
    object = ""
    chunk_object = ""
    _nothing: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, head: Head) -> None:
        self._head = {"id": head.id, "created": head.created, "model": head.model}
        self._prompt_tokens = head.prompt_tokens
        self._include_usage = head.include_usage
        self._completion_tokens = Counter({0: len(head.tokens)})  # by sample
        self._views: dict[int, LogprobView | None] = defaultdict(lambda: copy(head.logprobs))

    def _choice(self, piece: Piece, index: int) -> dict[str, Any]:
        raise TypeError("a format defines its choices")

    def _delta(self, piece: Piece, index: int, first: bool) -> dict[str, Any] | None:
        """None when there is nothing to say yet."""
        raise TypeError("a format defines its choices")

    def _shown(self, view: LogprobView, piece: Piece) -> dict[str, Any]:
        raise TypeError("a format defines how it shows log probabilities")

    def _ended(self, choice: Mapping[str, Any], piece: Piece, index: int) -> dict[str, Any]:
        """A choice with what follows its text. A prefill's receipt has no log probabilities."""
        view = self._views[index]
        shown = None if view is None or not piece.logprobs else self._shown(view, piece)
        return {"index": index, "logprobs": shown, "finish_reason": piece.finish, **choice}

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        choices = [self._ended(self._choice(piece, at), piece, at) for at, piece in enumerate(pieces)]
        usage = _usage(self._prompt_tokens, sum(len(piece.tokens) for piece in pieces))
        return {**self._head, "object": self.object, "choices": choices, "usage": usage}

    def chunk(self, piece: Piece, index: int = 0) -> dict[str, Any] | None:
        first = self._completion_tokens[index] == 0
        self._completion_tokens[index] += len(piece.tokens)
        said = self._delta(piece, index, first)
        if said is None and piece.finish is None and not first and not piece.logprobs:
            return None
        choice = self._ended(said or self._nothing, piece, index)
        document = {**self._head, "object": self.chunk_object, "choices": [choice]}
        return {**document, "usage": None} if self._include_usage else document

    def last(self) -> dict[str, Any] | None:
        if not self._include_usage:
            return None
        usage = _usage(self._prompt_tokens, self._completion_tokens.total())
        return {**self._head, "object": self.chunk_object, "choices": [], "usage": usage}


class CompletionFormat(_OpenAI):
    object = "text_completion"
    chunk_object = "text_completion"

    _nothing = MappingProxyType({"text": ""})

    def _choice(self, piece: Piece, index: int) -> dict[str, Any]:
        return {"text": piece.text}

    def _delta(self, piece: Piece, index: int, first: bool) -> dict[str, Any] | None:
        return {"text": piece.text} if piece.text else None

    def _shown(self, view: LogprobView, piece: Piece) -> dict[str, Any]:
        return view.completion(piece.tokens, piece.logprobs)


class ChatFormat(_OpenAI):
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    _nothing = MappingProxyType({"delta": {}})

    def _choice(self, piece: Piece, index: int) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": piece.text}}

    def _delta(self, piece: Piece, index: int, first: bool) -> dict[str, Any] | None:
        if first:
            return {"delta": {"role": "assistant", "content": piece.text}}
        return {"delta": {"content": piece.text}} if piece.text else None

    def _shown(self, view: LogprobView, piece: Piece) -> dict[str, Any]:
        return view.chat(piece.tokens, piece.logprobs)


class GenerateFormat:
    """SGLang's shape: every stream chunk carries the whole text and all tokens so far."""

    def __init__(self, head: Head) -> None:
        self._id = head.id
        self._prompt_tokens = head.prompt_tokens
        self._text = head.text
        self._tokens = list(head.tokens)

    def _document(self, text: str, tokens: list[int], finish: str | None) -> dict[str, Any]:
        meta = {
            "id": self._id,
            "finish_reason": None if finish is None else {"type": finish},
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": len(tokens),
        }
        return {"text": text, "output_ids": tokens, "meta_info": meta}

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        (piece,) = pieces
        return self._document(piece.text, piece.tokens, piece.finish)

    def chunk(self, piece: Piece, index: int = 0) -> dict[str, Any] | None:
        self._text += piece.text
        self._tokens.extend(piece.tokens)
        return self._document(self._text, self._tokens, piece.finish)

    def last(self) -> dict[str, Any] | None:
        return None
