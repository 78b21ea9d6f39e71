"""Decode steps that are captured once for each size of batch, and played.

What a graph holds are addresses: all that differs from one step to the next is copied into memory that is
made here, before any capture, and is the same for as long as the runner is. So nothing that happens to a
runner makes a graph stale, and none is ever captured while requests wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from engine.core.types import Batch, Slice
from engine.layers.step import Step
from engine.runner.planning import Planner
from engine.weights import ModelConfig
from kernels.ops.kv_write import kv_rows
from kernels.ops.paged_decode_attention import plan_decode, replan_decode
from kernels.streams.interface import Streams


def refusal(config: ModelConfig, tp: int) -> str:
    """Why the decode steps of a model are not captured, as the end of a sentence; empty when they are."""
    if config.mla is not None or config.compressed is not None:
        return "the shapes of this family's steps depend on how long the sequences are"
    if config.moe is not None:
        return "which experts a step computes is decided on the host"
    if tp > 1:
        return "collectives between ranks have never been tried in one"
    return ""


def sizes(least: int, most: int) -> tuple[int, ...]:
    """Rows of the steps that are captured: doubled from `least` on, and `most`."""
    found = [max(least, 1)]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return tuple(found)


@dataclass(frozen=True)
class DecodeRows:
    """A row for each sequence, then padding. `page` and `slot` are where a row's key and value go; `tables`
    and `lengths` are of its sequence."""

    tokens: list[int]
    positions: list[int]
    page: list[int]
    slot: list[int]
    tables: list[list[int]]
    lengths: list[int]

    @classmethod
    def of(cls, slices: list[Slice], size: int, page_size: int, spare: int) -> DecodeRows:
        """Up to `size` rows. A padding row is token 0 at position 0 of a sequence of length 0: it attends to
        nothing, its result is zero, and what it writes goes to the page `spare`, which is nobody's."""
        padding = size - len(slices)
        return cls(
            [s.tokens[0] for s in slices] + [0] * padding,
            [s.start for s in slices] + [0] * padding,
            [s.pages[s.start // page_size] for s in slices] + [spare] * padding,
            [s.start % page_size for s in slices] + [0] * padding,
            [s.pages for s in slices] + [[]] * padding,
            [s.start + 1 for s in slices] + [0] * padding,
        )


class DecodeGraphs:
    """`pool` has one page more than `planner` knows of; `most`: rows of the greatest step."""

    def __init__(
        self,
        model: Callable[[torch.Tensor, Step], torch.Tensor | None],
        pool: torch.Tensor,
        planner: Planner,
        streams: Streams,
        most: int,
    ) -> None:
        self._model, self._pool, self._planner, self._streams = model, pool, planner, streams
        self.sizes = sizes(planner.rows, most)
        greatest, device = self.sizes[-1], pool.device
        self._numbers = torch.zeros(2, greatest, dtype=torch.int64, device=device)
        self._kv_rows = torch.zeros(greatest, 2 * pool.shape[1], dtype=torch.int64, device=device)
        self._sampled = torch.arange(greatest, device=device)
        self._logits = torch.zeros(greatest, planner.vocab, device=device)
        width = -(-planner.cos.shape[0] // pool.shape[4])
        knobs = (planner.workspace, planner.target_ctas, width)
        self._plans = {n: plan_decode(pool, [[]] * n, [0] * n, *knobs) for n in self.sizes}
        self._played: dict[int, Callable[[], object]] = {}

    def capture(self) -> None:
        """Every size, the greatest first, of rows that are all padding; each is computed once before, so that
        kernels are built and libraries have their workspaces. RuntimeError when the device refuses it."""
        for size in reversed(self.sizes):
            self.fill([], size)
            self.compute(size)
            self._played[size] = self._streams.capture(partial(self.compute, size))

    def size(self, batch: Batch) -> int | None:
        """The step that the batch is played as; None when it is none that was captured."""
        rows = len(batch.slices)
        if not all(len(s.tokens) == 1 and s.sample for s in batch.slices):
            return None
        return next((n for n in self.sizes if n >= rows and n in self._played), None)

    def run(self, batch: Batch, size: int) -> torch.Tensor:
        """float32 logits [slices, vocab]. ValueError as the planner's, before anything is written."""
        self.fill(batch.slices, size)
        self._played[size]()
        return self._logits[: len(batch.slices)].clone()

    def fill(self, slices: list[Slice], size: int) -> None:
        for s in slices:
            self._planner.check(s)
        pages = self._pool.shape[0] - 1
        rows = DecodeRows.of(slices, size, self._pool.shape[4], spare=pages)
        # Checked against the pages that are somebody's, before anything is changed.
        plan = replan_decode(self._pool[:pages], self._plans[size], rows.tables, rows.lengths)
        self._plans[size] = plan
        places = kv_rows(self._pool, torch.tensor(rows.page), torch.tensor(rows.slot))
        self._kv_rows[:size].copy_(places.view(size, -1))
        self._numbers[:, :size].copy_(torch.tensor([rows.tokens, rows.positions]))

    def compute(self, size: int) -> None:
        """What is captured: from the rows to their logits, all in memory of this object."""
        tokens, positions = self._numbers[:, :size]
        step = Step(
            tokens,
            self._planner.cos.index_select(0, positions),
            self._planner.sin.index_select(0, positions),
            size,
            self._kv_rows[:size].view(-1),
            self._plans[size],
            (),
            self._sampled[:size],
        )
        logits = self._model(self._pool, step)
        if logits is not None:
            self._logits[:size].copy_(logits)
