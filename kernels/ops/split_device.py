"""The cut of `splits.py` on the device: the one place where a kernel learns which keys are whose."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def split_count(blocks, SPLITS: tl.constexpr, MIN_BLOCKS: tl.constexpr):
    """0 for no blocks, else from 1 to SPLITS."""
    return tl.minimum(SPLITS, (blocks + MIN_BLOCKS - 1) // MIN_BLOCKS)


@triton.jit
def share(i, n, whole):
    """The i-th of n balanced parts of 0..whole, half open; none is empty while n <= whole."""
    return i * whole // n, (i + 1) * whole // n


@triton.jit
def merge_splits(rows, lse, row, stride, n, sink, DIM: tl.constexpr, DIM_PAD: tl.constexpr):
    """The n partial rows row, row + stride, ... merged in their order; `sink` only weighs.

    Log-sum-exps are to the base 2, that of nothing is minus infinity.
    """
    TILE: tl.constexpr = 16
    part = tl.arange(0, TILE)
    dims = tl.arange(0, DIM_PAD)
    top = sink
    for i in range(0, n, TILE):
        at = row + (i + part) * stride
        top = tl.maximum(top, tl.max(tl.load(lse + at, mask=i + part < n, other=float("-inf")), 0))
    base = tl.where(top == float("-inf"), 0.0, top)
    total = tl.exp2(sink - base)
    merged = tl.zeros((DIM_PAD,), tl.float32)
    for i in range(0, n, TILE):
        at = row + (i + part) * stride
        there = i + part < n
        weight = tl.exp2(tl.load(lse + at, mask=there, other=float("-inf")) - base)
        value = tl.load(
            rows + at[:, None] * DIM + dims[None, :],
            mask=there[:, None] & (dims < DIM)[None, :],
            other=0.0,
        )
        total += tl.sum(weight, 0)
        # A part of no weight may hold what must not count: 0 * NaN is NaN.
        merged += tl.sum(tl.where((weight > 0)[:, None], weight[:, None] * value, 0.0), 0)
    return merged / tl.where(total > 0, total, 1.0)
