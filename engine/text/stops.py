"""Stop strings over text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Holds back text that may be the start of a stop string; the stop string itself is not emitted."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [s for s in stops if s]
        self._held = ""
        self.matched: str | None = None

    def add(self, text: str) -> str:
        """Text that is safe to emit. `matched` is set once a stop string is complete."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        hits = [(at, -len(s), s) for s in self._stops if (at := text.find(s)) >= 0]
        if hits:
            at, _, self.matched = min(hits)
            self._held = ""
            return text[:at]
        keep = max(self._overlap(text, s) for s in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of `text` that is a start of `stop`, and not all of it."""
        for size in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:size]):
                return size
        return 0

    def finish(self) -> str:
        """What is still held at the end of the output: it was no stop string after all."""
        held, self._held = self._held, ""
        return held
