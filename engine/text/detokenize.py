"""Tokens to text as they come, never half a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BROKEN = "\ufffd"
# An unfinished character shows as replacement characters at the end: one in byte-level decoders, and in
# byte-fallback decoders one for each byte of the whole run of byte tokens it stands in. So all of them
# are held, but for a model that emits nothing else and would have each step decode all of it again.
_LONGEST_PENDING = 64
# Prompt tokens that stand before the output: decoders drop the leading space of the first token they see.
_CONTEXT = 4


def _certain(text: str) -> int:
    """Number of leading characters that more tokens cannot change."""
    return len(text.rstrip(_BROKEN))


class Detokenizer:
    """`decode` maps token ids to text, broken bytes to U+FFFD, special tokens to nothing.

    Each call decodes a short window that begins one emission back, so that its first new token is never
    the first token of a text; what the window gained is the new text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int] = ()) -> None:
        self._decode = decode
        self._window = list(prompt[-_CONTEXT:])
        self._taken = len(self._window)  # tokens of the window whose text was emitted whole
        self._emitted = _certain(decode(self._window)) if self._window else 0  # characters of the window

    def add(self, tokens: Sequence[int]) -> str:
        """Text that became certain with these tokens; may be empty."""
        self._window.extend(tokens)
        text = self._decode(self._window)
        certain = _certain(text)
        if len(self._window) - self._taken > _LONGEST_PENDING:
            certain = len(text)
        new = text[self._emitted : certain]
        self._emitted = max(self._emitted, certain)
        if certain == len(text):
            self._window = self._window[self._taken :]
            self._taken = len(self._window)
            self._emitted = len(self._decode(self._window))
        return new

    def finish(self) -> str:
        """The held-back tail, at the end of the output; an unfinished character shows as U+FFFD."""
        return self._decode(self._window)[self._emitted :]
