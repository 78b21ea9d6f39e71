"""Runners on streams of a test's own, and two sequences at the end of their prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from engine.core.types import Batch, Slice
from engine.parallel.comm import Comm
from engine.runner import ModelRunner, Tuning
from kernels.streams import SerialStreams, Streams

PAGES = 48


@dataclass(frozen=True)
class On(Tuning):
    backend: Streams = field(default_factory=SerialStreams)

    def streams(self, device: torch.device) -> Streams:
        return self.backend


class Replayed(SerialStreams):
    """What is captured is computed again when it is played: a graph's results without a GPU."""

    captures = True


def runner_on(
    folder: Path, backend: Streams | None = None, max_running: int = 5, graphs: bool = True
) -> ModelRunner:
    tuning = On(max_running=max_running, graphs=graphs, backend=backend or SerialStreams())
    return ModelRunner(
        folder,
        dtype="float32",
        device="cpu",
        rank=0,
        tp=1,
        comm=Comm(0, 1),
        page_size=16,
        pages=PAGES,
        tuning=tuning,
    )


def prompts(runner: ModelRunner, lengths: tuple[int, ...]) -> list[Slice]:
    """One slice a sequence, each in pages of its own."""
    each = runner.shape.state_pages + 2
    return [
        Slice([(7 * i + 3 * n) % 101 for i in range(n)], 0, list(range(at * each, (at + 1) * each)), True)
        for at, n in enumerate(lengths)
    ]


def next_step(slices: list[Slice], logits: torch.Tensor) -> list[Slice]:
    """Each sequence goes on with its likeliest token."""
    tokens = logits.argmax(-1).tolist()
    return [
        Slice([token], s.start + len(s.tokens), s.pages, True)
        for s, token in zip(slices, tokens, strict=True)
    ]


def run(runner: ModelRunner, slices: list[Slice]) -> torch.Tensor:
    logits = runner.run(Batch(0, slices))
    assert logits is not None
    return logits


def played_wrong(
    eager: ModelRunner, played: ModelRunner, near: float = 0.0, most: int = 5, steps: int = 4
) -> str:
    """How captured steps differ from eager ones, token by token; empty when they do not.

    Each number of sequences up to `most` decodes `steps` tokens. `played` gets its captures here. A token
    may be another one whose eager logit is not more than `near` below the greatest.
    """
    played.prepare()
    if played._graphs is None:
        return "no decode step was captured"
    slices = prompts(eager, tuple(3 + 4 * i for i in range(most)))
    first = run(eager, slices)
    played.pool.copy_(eager.pool)
    for count in range(1, most + 1):
        batch = next_step(slices[:count], first[:count])
        for at in range(steps):
            want, got = run(eager, batch), run(played, batch)
            lost = want.amax(-1) - want.gather(1, got.argmax(-1, keepdim=True)).squeeze(1)
            if not bool((lost <= near).all()):
                apart = float((want - got).abs().max())
                return f"{count} sequences, step {at}: other tokens, logits up to {apart:.3g} apart"
            batch = next_step(batch, want)
    return ""
