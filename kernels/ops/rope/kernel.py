"""One program a token and a block of heads; the partner of a pair is a second load of the same cache line."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.rope.reference import check

CONFIGS = {90: Config(4, 1, {"HEADS": 8})}


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """As the reference."""
    return _turn(x, cos, sin, interleaved, 1.0)


def rope_inverse(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """As the reference."""
    return _turn(x, cos, sin, interleaved, -1.0)


def _turn(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, sign: float
) -> torch.Tensor:
    check(x, cos, sin)
    tokens, heads, dim = x.shape
    x = x if x.stride(2) == 1 else x.contiguous()
    cos, sin = cos.contiguous(), sin.contiguous()
    out = torch.empty((tokens, heads, dim), dtype=x.dtype, device=x.device)
    config = choose(CONFIGS, x.device)
    launch(
        _rotate,
        (tokens, -(-heads // config["HEADS"])),
        {"x": x, "cos": cos, "sin": sin, "out": out}
        | {"heads": heads, "x_token": x.stride(0), "x_head": x.stride(1)},
        ("out",),
        config,
        HEADS=config["HEADS"],
        DIM=dim,
        PAD=triton.next_power_of_2(dim),
        INTERLEAVED=interleaved,
        SIGN=sign,
    )
    return out


@triton.jit(do_not_specialize=["heads"])
def _rotate(
    x,
    cos,
    sin,
    out,
    heads,
    x_token,
    x_head,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PAD: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    SIGN: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    dims = tl.arange(0, PAD)
    partner = dims ^ 1 if INTERLEAVED else (dims + DIM // 2) % DIM
    real = (head < heads)[:, None] & (dims < DIM)[None, :]
    row = x + token * x_token + head[:, None] * x_head
    own = tl.load(row + dims[None, :], mask=real, other=0.0).to(tl.float32)
    other = tl.load(row + partner[None, :], mask=real, other=0.0).to(tl.float32)
    c = tl.load(cos + token * DIM + dims, mask=dims < DIM, other=0.0).to(tl.float32)
    s = tl.load(sin + token * DIM + dims, mask=dims < DIM, other=0.0).to(tl.float32) * SIGN
    turned = own * c[None, :] + other * s[None, :]
    at = out + (token * heads + head[:, None]) * DIM + dims[None, :]
    tl.store(at, turned.to(out.dtype.element_ty), mask=real)
