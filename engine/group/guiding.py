"""Grammars of the leader's sequences: which tokens each may sample in a step.

A guide is made from the request and the tokens so far, whoever sampled them: so an answer goes on where it
was after a preemption, on a decode that got its first token from prefill, and on another pair.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.core.errors import RequestError
from engine.schedule.sequence import Sequence as Seq


def library() -> ModuleType:
    """`engine.text.grammar`: its library is loaded by the first request that asks for a grammar. RequestError
    where it is not installed."""
    try:
        return importlib.import_module("engine.text.grammar")
    except ImportError as error:
        text = f"This installation shapes no answers: {error}."
        raise RequestError(
            "not_supported", text, 400, "Deploy again with the release's own packages."
        ) from None


class Guiding:
    """`model` is the folder with the tokenizer. `prepare` is for any thread, the rest for the scheduler's."""

    def __init__(self, model: str, eos: Sequence[int]) -> None:
        self._model, self._eos = Path(model), eos
        self._lock = threading.Lock()
        self._guides: Any = None

    def prepare(self) -> None:
        """Read the tokenizer, which takes up to seconds, before a step needs it. RequestError."""
        with self._lock:
            if self._guides is None:
                try:
                    self._guides = library().Guides(self._model, self._eos)
                except ValueError as error:
                    raise RequestError("invalid_request", str(error)) from None

    def allowed(self, due: Sequence[Seq]) -> tuple[dict[int, bytes], list[tuple[Seq, str]]]:
        """Masks by row of those that follow a grammar, and those that cannot go on, with the reason."""
        masks: dict[int, bytes] = {}
        stuck: list[tuple[Seq, str]] = []
        for row, seq in enumerate(due):
            if seq.request.grammar is not None:
                try:
                    masks[row] = self._mask(seq, seq.request.grammar)
                except ValueError as error:
                    stuck.append((seq, str(error)))
        return masks, stuck

    def _mask(self, seq: Seq, grammar: str) -> bytes:
        request = seq.request
        output = request.prompt[len(request.prompt) - request.earlier :] + seq.output
        if seq.guide is None or not seq.guide.follows(output):
            self.prepare()
            seq.guide = self._guides.begin(grammar)
        return bytes(seq.guide.allowed(output))
