"""One program a row, the row in registers, float32 inside."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.rms_norm.reference import check

CONFIGS = {90: Config(4, 1)}
MAX_ROW = 1 << 14


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As the reference; ValueError also for rows of more than MAX_ROW, which would spill."""
    check(x, weight)
    size = x.shape[-1]
    if size > MAX_ROW:
        raise ValueError(f"a row of {size}: the kernel holds up to {MAX_ROW} in registers")
    rows = x.reshape(-1, size)
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    out = torch.empty((rows.shape[0], size), dtype=x.dtype, device=x.device)
    launch(
        _norm,
        (rows.shape[0],),
        {"x": rows, "weight": weight, "out": out, "eps": eps, "x_row": rows.stride(0)},
        ("out",),
        choose(CONFIGS, x.device),
        SIZE=size,
        PAD=triton.next_power_of_2(size),
    )
    return out.view(x.shape)


@triton.jit
def _norm(x, weight, out, eps, x_row, SIZE: tl.constexpr, PAD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, PAD)
    real = at < SIZE
    value = tl.load(x + row * x_row + at, mask=real, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / SIZE + eps)
    weighed = value * scale * tl.load(weight + at, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * SIZE + at, weighed.to(out.dtype.element_ty), mask=real)
