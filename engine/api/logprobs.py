"""Log probabilities in an answer: who asks for them, and their two OpenAI shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.api.schema import ChatBody, CompletionBody, GenerateBody
from engine.core.types import Logprob
from engine.http.errors import ParamError


def asked_for(body: CompletionBody | ChatBody | GenerateBody) -> int | None:
    """How many of the likeliest tokens are wanted beside each token's own; None for no log probabilities."""
    if isinstance(body, CompletionBody):
        if body.logprobs is True:
            raise ParamError("logprobs", "logprobs of a completion is a number.", hint="Chat takes true.")
        return None if body.logprobs is False else body.logprobs
    if isinstance(body, ChatBody):
        if body.top_logprobs and not body.logprobs:
            raise ParamError("top_logprobs", "top_logprobs needs logprobs: true.")
        return (body.top_logprobs or 0) if body.logprobs else None
    return None


class LogprobView:
    """Shows the log probabilities of one answer, in order. `show` is a token's text.

    `earlier` are output tokens that the client had before; text offsets count from their first.
    """

    def __init__(self, show: Callable[[int], str], earlier: Sequence[int] = ()) -> None:
        self._show = show
        self._offset = sum(len(show(token)) for token in earlier)

    def completion(self, tokens: Sequence[int], logprobs: Sequence[Logprob]) -> dict[str, Any]:
        """`text_offset` counts characters; of two tokens with one text the likelier is shown."""
        texts, offsets = [self._show(token) for token in tokens], []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [one.value for one in logprobs],
            "top_logprobs": [{self._show(t): v for t, v in reversed(one.top)} for one in logprobs],
            "text_offset": offsets,
        }

    def chat(self, tokens: Sequence[int], logprobs: Sequence[Logprob]) -> dict[str, Any]:
        content = [
            {**self._entry(token, one.value), "top_logprobs": [self._entry(t, v) for t, v in one.top]}
            for token, one in zip(tokens, logprobs, strict=True)
        ]
        return {"content": content}

    def _entry(self, token: int, value: float) -> dict[str, Any]:
        """`bytes` is null for a token that is a part of a character."""
        text = self._show(token)
        whole = "\ufffd" not in text
        return {"token": text, "logprob": value, "bytes": list(text.encode()) if whole else None}
