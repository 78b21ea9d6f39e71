"""The first greatest logit of a row, one program a row. Seeded sampling is the reference's, on the host."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.sample.reference import check

CONFIGS = {90: Config(8, 2, {"BLOCK": 4096})}


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """As the reference; logits are no NaN."""
    check(logits)
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    out = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    config = choose(CONFIGS, logits.device)
    launch(
        _greatest,
        (logits.shape[0],),
        {"logits": logits, "out": out, "size": logits.shape[1], "row": logits.stride(0)},
        ("out",),
        config,
        BLOCK=config["BLOCK"],
    )
    return out


@triton.jit(do_not_specialize=["size"])
def _greatest(logits, out, size, row, BLOCK: tl.constexpr):
    at_row = tl.program_id(0).to(tl.int64)
    best = tl.full((), float("-inf"), tl.float32)
    token = tl.zeros((), tl.int32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(logits + at_row * row + at, mask=at < size, other=float("-inf")).to(tl.float32)
        greatest = tl.max(value, 0)
        here = tl.min(tl.where((value == greatest) & (at < size), at, size), 0)
        token = tl.where(greatest > best, here, token)
        best = tl.maximum(best, greatest)
    tl.store(out + at_row, token.to(tl.int64))
