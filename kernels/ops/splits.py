"""How decode attention is cut along the context, so that no value of a knob and no batch can break it.

A row of n blocks of keys is cut into `count(n)` splits, balanced to one block, none empty. The count depends
on the row's length and on capacities alone; each split has its own place in the workspace, and they are
merged in their order. So a row's bits do not depend on the batch it is in, nor on how many CTAs work: the
operator's target only says how many share the splits of a row. Grid and workspace are made from `splits`,
which a captured graph may hold.

A partial result is a float32 row and its log-sum-exp to the base 2; of nothing it is minus infinity. Only
complete rows leave a kernel: one without keys is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

MIN_BLOCKS = 2  # of keys in a split: below, merging costs more than it saves
MAX_SPLITS = 128
_WAVES = 2  # CTAs that a plan provides for, per multiprocessor of a large GPU
_PROCESSORS = 160
LEAST_TARGET, MOST_TARGET = 1, 1 << 16  # CTAs that an operator may ask for; the greatest is no limit
HEAD_TILE = 16  # query heads that share the rows they read; the least that a tensor core takes


@dataclass(frozen=True)
class SplitPlan:
    """For up to `max_batch` rows of up to `max_tokens` keys; `heads` query heads share `kv_heads`.

    `block` keys are read at a time; `splits` is the most a row is cut into.
    """

    max_batch: int
    heads: int
    kv_heads: int
    dim: int
    max_tokens: int
    block: int
    splits: int

    @classmethod
    def of(
        cls, *, max_batch: int, heads: int, kv_heads: int, dim: int, max_tokens: int, block: int = 64
    ) -> SplitPlan:
        """ValueError when a capacity is not positive, heads do not divide, or block is no power of 2."""
        sizes = (max_batch, heads, kv_heads, dim, max_tokens, block)
        if min(sizes) < 1 or heads % kv_heads or block & (block - 1):
            raise ValueError(
                f"no split plan for batch {max_batch}, {heads} heads over {kv_heads}, dim {dim}, "
                f"{max_tokens} tokens in blocks of {block}"
            )
        useful = -(-max_tokens // (block * MIN_BLOCKS))
        wanted = -(-_WAVES * _PROCESSORS // kv_heads)
        return cls(*sizes[:5], block, min(useful, wanted, MAX_SPLITS))

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def workspace_shape(self) -> tuple[int, ...]:
        """Of the partial rows; their log-sum-exps have this shape without the last dimension."""
        return (self.max_batch, self.kv_heads, self.splits, self.group, self.dim)

    def count(self, tokens: int) -> int:
        """Splits of a row of so many keys: 0 for an empty one, else from 1 to `splits`."""
        blocks = -(-tokens // self.block)
        return min(self.splits, -(-blocks // MIN_BLOCKS))

    def ranges(self, tokens: int) -> list[tuple[int, int]]:
        """The blocks of each split of a row, half open."""
        blocks, n = -(-tokens // self.block), self.count(tokens)
        return [(i * blocks // n, (i + 1) * blocks // n) for i in range(n)]

    def active(self, batch: int, target_ctas: int | None) -> int:
        """CTAs that share the splits of one row and KV head, from 1 to `splits`.

        `target_ctas` is how many the operator wants over the whole batch; None: as many as there are. More
        than there are is as many as there are. ValueError below 1.
        """
        if target_ctas is None:
            return self.splits
        if target_ctas < LEAST_TARGET:
            raise ValueError(f"a target of {target_ctas} CTAs: at least 1 must work")
        return max(1, min(self.splits, target_ctas // max(1, batch * self.kv_heads)))


def head_tiles(heads: int) -> int:
    """KV heads of a plan for attention whose heads all read the same rows; ValueError for part of a tile."""
    if heads > HEAD_TILE and heads % HEAD_TILE:
        raise ValueError(f"{heads} heads are not whole tiles of {HEAD_TILE}")
    return max(1, heads // HEAD_TILE)


class SplitWorkspace:
    """Partial results of one plan on one stream: made before anything is captured, never grown, and NaN
    wherever no kernel has written, so that a read of what nobody wrote shows."""

    def __init__(self, plan: SplitPlan, device: torch.device | str, stream: str = "main") -> None:
        self.plan, self.stream = plan, stream
        shape = plan.workspace_shape
        self.rows = torch.full(shape, math.nan, dtype=torch.float32, device=device)
        self.lse = torch.full(shape[:-1], math.nan, dtype=torch.float32, device=device)

    def check(self, batch: int, heads: int, kv_heads: int, dim: int, tokens: int) -> None:
        """ValueError when a step does not fit what the workspace was made for."""
        plan = self.plan
        if (heads, kv_heads, dim) != (plan.heads, plan.kv_heads, plan.dim):
            raise ValueError(
                f"{heads} heads over {kv_heads} of {dim}: the workspace of stream {self.stream} is for "
                f"{plan.heads} over {plan.kv_heads} of {plan.dim}"
            )
        if batch > plan.max_batch or tokens > plan.max_tokens:
            raise ValueError(
                f"{batch} rows of up to {tokens} tokens: the workspace of stream {self.stream} is for "
                f"{plan.max_batch} of {plan.max_tokens} and does not grow"
            )
        if self.rows.shape != plan.workspace_shape or self.lse.shape != plan.workspace_shape[:-1]:
            raise ValueError(f"the workspace of stream {self.stream} is not of its plan's shape")


def needed(workspace: SplitWorkspace | None) -> SplitWorkspace:
    """ValueError when a kernel is called without the workspace that its reference does not need."""
    if workspace is None:
        raise ValueError("decode attention on a GPU needs the workspace of its stream")
    return workspace


class Workspaces:
    """One workspace a stream. Sealed before the first capture: then an unknown stream is an error."""

    def __init__(self, plan: SplitPlan, device: torch.device | str) -> None:
        self._plan, self._device = plan, device
        self._sealed = False
        self._by_stream: dict[str, SplitWorkspace] = {}

    def of(self, stream: str) -> SplitWorkspace:
        if stream not in self._by_stream:
            if self._sealed:
                raise ValueError(
                    f"stream {stream} has no split workspace, and no more are made after capture"
                )
            self._by_stream[stream] = SplitWorkspace(self._plan, self._device, stream)
        return self._by_stream[stream]

    def seal(self) -> None:
        self._sealed = True
