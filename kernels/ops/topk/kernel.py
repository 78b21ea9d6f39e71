"""A radix select, one program a row: four passes find the k-th greatest key by eight bits each, a fifth
writes what is above it and the first of its equals.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.topk.reference import check

CONFIGS = {90: Config(8, 2, {"BLOCK": 2048}), 120: Config(8, 2, {"BLOCK": 2048})}


def topk(scores: torch.Tensor, lengths: torch.Tensor, k: int) -> torch.Tensor:
    """As the reference."""
    check(scores, lengths, k)
    rows, width = scores.shape
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    out = torch.empty((rows, k), dtype=torch.int32, device=scores.device)
    config = choose(CONFIGS, scores.device)
    launch(
        _select,
        (rows,),
        {"scores": scores, "lengths": lengths, "out": out, "width": width, "row": scores.stride(0)},
        ("out",),
        config,
        K=k,
        BLOCK=config["BLOCK"],
    )
    return out


@triton.jit
def _key(score):
    """An uint32 in the order of float32; -0 is put on 0, so that equals are equal."""
    bits = (score + 0.0).to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) != 0, ~bits, bits | 0x80000000)


@triton.jit
def _kth(scores, length, K: tl.constexpr, BLOCK: tl.constexpr):
    """The key of the K-th greatest, and how many equal to it are taken."""
    digits = tl.arange(0, 256)
    prefix = tl.zeros((), tl.uint32)
    need = tl.full((), K, tl.int32)
    for step in tl.static_range(4):
        count = tl.zeros((256,), tl.int32)
        for first in range(0, length, BLOCK):
            at = first + tl.arange(0, BLOCK)
            key = _key(tl.load(scores + at, mask=at < length, other=0.0))
            real = at < length
            if step > 0:
                real = real & ((key >> (32 - 8 * step)) == prefix)
            count += tl.histogram(((key >> (24 - 8 * step)) & 0xFF).to(tl.int32), 256, mask=real)
        reach = tl.cumsum(count, 0, reverse=True)
        digit = tl.max(tl.where(reach >= need, digits, -1), 0)
        need -= tl.sum(tl.where(digits > digit, count, 0), 0)
        prefix = (prefix << 8) | digit.to(tl.uint32)
    return prefix, need


@triton.jit(do_not_specialize=["width"])
def _select(scores, lengths, out, width, row, K: tl.constexpr, BLOCK: tl.constexpr):
    at_row = tl.program_id(0).to(tl.int64)
    length = tl.minimum(tl.load(lengths + at_row), width)
    scores += at_row * row
    out += at_row * K
    if length <= K:
        for first in range(0, K, BLOCK):
            at = first + tl.arange(0, BLOCK)
            tl.store(out + at, tl.where(at < length, at, -1), mask=at < K)
        return
    least, need = _kth(scores, length, K, BLOCK)
    above = tl.zeros((), tl.int32)
    equal = tl.zeros((), tl.int32)
    for first in range(0, length, BLOCK):
        at = first + tl.arange(0, BLOCK)
        real = at < length
        key = _key(tl.load(scores + at, mask=real, other=0.0))
        is_above = (real & (key > least)).to(tl.int32)
        is_equal = (real & (key == least)).to(tl.int32)
        place = above + tl.cumsum(is_above, 0) - is_above
        tl.store(out + place, at, mask=is_above != 0)
        place = equal + tl.cumsum(is_equal, 0) - is_equal
        tl.store(out + K - need + place, at, mask=(is_equal != 0) & (place < need))
        above += tl.sum(is_above, 0)
        equal += tl.sum(is_equal, 0)
