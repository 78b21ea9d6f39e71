"""A batch becomes a step: rows ordered, positions turned into places in the pool, attention planned."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.core.types import Batch, Slice
from engine.layers.step import Step
from kernels.ops.kv_write import kv_rows
from kernels.ops.paged_decode_attention import DecodePlan, plan_decode
from kernels.ops.paged_prefill_attention import PrefillPlan, plan_prefill
from kernels.ops.splits import SplitWorkspace


@dataclass(frozen=True)
class Planner:
    """`cos` and `sin` are rope tables over every position; `rows` is the least number of rows in a step.

    `workspace` is None on a CPU; `target_ctas` is the operator's.
    """

    pool: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    rows: int
    vocab: int
    workspace: SplitWorkspace | None = None
    target_ctas: int | None = None

    def plan(self, batch: Batch) -> Step:
        """ValueError for a slice that is empty, past the last position, without its pages or no tokens."""
        page_size, device = self.pool.shape[4], self.pool.device
        decode = [i for i, s in enumerate(batch.slices) if len(s.tokens) == 1]
        prefill = [i for i, s in enumerate(batch.slices) if len(s.tokens) != 1]
        tokens: list[int] = []
        positions: list[int] = []
        pages: list[int] = []
        last_row: dict[int, int] = {}
        for i in (*decode, *prefill):
            s = batch.slices[i]
            own = range(s.start, s.start + len(s.tokens))
            self.check(s)
            tokens += s.tokens
            positions += own
            pages += [s.pages[p // page_size] for p in own]
            last_row[i] = len(tokens) - 1
        real = len(tokens)
        padding = [0] * max(0, self.rows - real)
        at = torch.tensor(positions + padding, device=device)
        sampled = [last_row[i] for i, s in enumerate(batch.slices) if s.sample]
        return Step(
            torch.tensor(tokens + padding, device=device),
            self.cos.index_select(0, at),
            self.sin.index_select(0, at),
            real,
            kv_rows(self.pool, torch.tensor(pages, device=device), at[:real] % page_size),
            self._decodes([batch.slices[i] for i in decode]),
            self._prefills([batch.slices[i] for i in prefill], len(decode)),
            torch.tensor(sampled, dtype=torch.int64, device=device),
        )

    def check(self, s: Slice) -> None:
        """ValueError as of `plan`, but for pages outside of the pool."""
        stop = s.start + len(s.tokens)
        if not s.tokens or s.start < 0 or stop > self.cos.shape[0]:
            raise ValueError(
                f"a slice of {len(s.tokens)} tokens at {s.start} is outside 0..{self.cos.shape[0]}"
            )
        if len(s.pages) * self.pool.shape[4] < stop:
            raise ValueError(f"{len(s.pages)} pages do not cover positions up to {stop - 1}")
        if not 0 <= min(s.tokens) <= max(s.tokens) < self.vocab:
            raise ValueError(f"a token is outside 0..{self.vocab - 1}")

    def _decodes(self, slices: list[Slice]) -> DecodePlan | None:
        if not slices:
            return None
        lengths = [s.start + 1 for s in slices]
        pages = [s.pages for s in slices]
        return plan_decode(self.pool, pages, lengths, self.workspace, self.target_ctas)

    def _prefills(self, slices: list[Slice], first: int) -> tuple[tuple[int, int, PrefillPlan], ...]:
        found = []
        for s in slices:
            plan = plan_prefill(self.pool, s.pages, s.start, len(s.tokens), self.pool.dtype)
            found.append((first, first + len(s.tokens), plan))
            first += len(s.tokens)
        return tuple(found)
