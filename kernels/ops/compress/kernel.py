"""One program a window and a block of channels; an online softmax over the tokens, so any ratio fits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.compress.reference import check

CONFIGS = {90: Config(4, 2, {"CHANNELS": 128, "TOKENS": 16})}


def compress(
    kv: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor, previous: torch.Tensor | None = None
) -> torch.Tensor:
    """As the reference."""
    check(kv, gate, bias, previous)
    windows, ratio, width = kv.shape
    dim = width if previous is None else width // 2
    out = torch.empty((windows, dim), dtype=torch.float32, device=kv.device)
    config = choose(CONFIGS, kv.device)
    launch(
        _compress,
        (windows, -(-dim // config["CHANNELS"])),
        {"kv": kv.contiguous(), "gate": gate.contiguous(), "bias": bias.contiguous(), "out": out}
        | {"previous": out if previous is None else previous},
        ("out",),
        config,
        RATIO=ratio,
        DIM=dim,
        WIDTH=width,
        CHANNELS=config["CHANNELS"],
        TOKENS=config["TOKENS"],
        OVERLAP=previous is not None,
    )
    return out


@triton.jit
def _compress(
    kv, gate, bias, out, previous,
    RATIO: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
    TOKENS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    window = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    acc = tl.zeros((CHANNELS,), tl.float32)
    total = tl.zeros((CHANNELS,), tl.float32)
    top = tl.full((CHANNELS,), float("-inf"), tl.float32)
    if OVERLAP:
        before = tl.load(previous + window).to(tl.int64)
        acc, total, top = _window(kv, gate, bias, before, channel, acc, total, top, RATIO, DIM, WIDTH, TOKENS)
    own = channel + (WIDTH - DIM)
    acc, total, top = _window(kv, gate, bias, window, own, acc, total, top, RATIO, WIDTH, WIDTH, TOKENS)
    tl.store(out + window * DIM + channel, acc / total, mask=channel < DIM)


@triton.jit
def _window(
    kv, gate, bias, window, channel, acc, total, top,
    RATIO: tl.constexpr, END: tl.constexpr, WIDTH: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """The state with one window's channels below END taken in; nothing of a window below 0."""
    tokens = tl.where(window >= 0, RATIO, 0)
    for first in range(0, RATIO, TOKENS):
        token = first + tl.arange(0, TOKENS)
        real = (token < tokens)[:, None] & (channel < END)[None, :]
        place = token[:, None] * WIDTH + channel[None, :]
        at = window * (RATIO * WIDTH) + place
        logit = tl.load(gate + at, mask=real, other=0.0).to(tl.float32)
        logit += tl.load(bias + place, mask=real, other=0.0).to(tl.float32)
        logit = tl.where(real, logit, float("-inf"))
        value = tl.load(kv + at, mask=real, other=0.0).to(tl.float32)
        higher = tl.maximum(top, tl.max(logit, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        fade = tl.exp2((top - base) * 1.4426950408889634)
        weight = tl.exp2((logit - base[None, :]) * 1.4426950408889634)
        acc = acc * fade + tl.sum(weight * value, 0)
        total = total * fade + tl.sum(weight, 0)
        top = higher
    return acc, total, top
