"""A batch as rows of tokens: what every model needs of a step before it plans its own attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch

from engine.core.types import Batch, Slice


class Run(NamedTuple):
    """Rows first..last of a step are positions start..start+last-first of the sequence with these pages."""

    first: int
    last: int
    start: int
    pages: list[int]


@dataclass(frozen=True)
class Rows:
    """Token rows in this order: one per decoding sequence, then each prefilling run, then padding.

    `tokens`, `positions` int64 [rows]; `real` rows are not padding; `sampled` int64 rows whose logits are
    wanted, in the order of the batch's slices.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    real: int
    runs: tuple[Run, ...]
    sampled: torch.Tensor

    def each(self, values: list[list[int]]) -> torch.Tensor:
        """int64 [real, n]: of each row what its run has, filled up with 0 where that is shorter."""
        width, device = max(map(len, values)), self.tokens.device
        table = torch.tensor([own + [0] * (width - len(own)) for own in values], device=device)
        counts = torch.tensor([run.last - run.first for run in self.runs], device=device)
        return table.repeat_interleave(counts, 0)

    def pages(self, page_size: int, state_pages: int = 0) -> torch.Tensor:
        """int64 [real, n]: each row's pages that hold its sequence's tokens up to the run's end."""
        ends = [run.start + run.last - run.first for run in self.runs]
        lists = zip(self.runs, ends, strict=True)
        return self.each([run.pages[state_pages : state_pages - (-end // page_size)] for run, end in lists])


class Bounds(NamedTuple):
    """What a slice must keep to: the model's window and vocabulary, the pool's pages and their tokens.

    Of each sequence's pages the first `state_pages` hold no tokens.
    """

    window: int
    vocab: int
    pages: int
    page_size: int
    state_pages: int = 0


def planned(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a step's plan: what work beside the main one may read."""
    if isinstance(value, torch.Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from planned(getattr(value, field.name))
    elif isinstance(value, tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from planned(one)


def order(batch: Batch, bounds: Bounds, least: int, device: torch.device) -> Rows:
    """The batch's rows, at least `least`. ValueError for a slice that is empty or out of bounds."""
    ordered = sorted(range(len(batch.slices)), key=lambda i: len(batch.slices[i].tokens) != 1)
    tokens: list[int] = []
    positions: list[int] = []
    runs: list[Run] = []
    last_row: dict[int, int] = {}
    for i in ordered:
        s = batch.slices[i]
        check(s, bounds)
        runs.append(Run(len(tokens), len(tokens) + len(s.tokens), s.start, s.pages))
        tokens += s.tokens
        positions += range(s.start, s.start + len(s.tokens))
        last_row[i] = len(tokens) - 1
    real = len(tokens)
    padding = [0] * max(0, least - real)
    sampled = [last_row[i] for i, s in enumerate(batch.slices) if s.sample]
    return Rows(
        torch.tensor(tokens + padding, device=device),
        torch.tensor(positions + padding, device=device),
        real,
        tuple(runs),
        torch.tensor(sampled, dtype=torch.int64, device=device),
    )


def check(s: Slice, bounds: Bounds) -> None:
    """ValueError for a slice that is empty, past the last position, without its pages or no tokens."""
    stop = s.start + len(s.tokens)
    if not s.tokens or s.start < 0 or stop > bounds.window:
        raise ValueError(f"a slice of {len(s.tokens)} tokens at {s.start} is outside 0..{bounds.window}")
    if (len(s.pages) - bounds.state_pages) * bounds.page_size < stop:
        raise ValueError(f"{len(s.pages)} pages do not cover positions up to {stop - 1}")
    if not 0 <= min(s.tokens) <= max(s.tokens) < bounds.vocab:
        raise ValueError(f"a token is outside 0..{bounds.vocab - 1}")
    if not 0 <= min(s.pages) <= max(s.pages) < bounds.pages:
        raise ValueError(f"a page is outside 0..{bounds.pages - 1}")
