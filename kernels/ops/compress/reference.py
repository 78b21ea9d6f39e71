"""DeepSeek-V4's compressors: of heavily compressed (one window) and compressed sparse attention (two)."""

from __future__ import annotations

import torch


def check(kv: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor, previous: torch.Tensor | None) -> None:
    fits = kv.dim() == 3 and kv.shape == gate.shape and bias.shape == kv.shape[1:] and kv.shape[1] > 0
    if previous is not None:
        fits = (
            fits and previous.shape == kv.shape[:1] and previous.dtype == torch.int32 and not kv.shape[2] % 2
        )
    if not fits:
        raise ValueError(
            f"kv {list(kv.shape)}, gate {list(gate.shape)}, bias {list(bias.shape)}, "
            f"previous {None if previous is None else list(previous.shape)}"
        )


def compress(
    kv: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor, previous: torch.Tensor | None = None
) -> torch.Tensor:
    """float32 [windows, dim]: each channel's sum over a window's tokens of softmax(gate + bias) * kv.

    kv, gate [windows, ratio, dim], bias [ratio, dim]. With `previous` int32 [windows], kv, gate and bias have
    2 * dim channels: an entry mixes the first dim channels of window previous[w] (below 0: there is none)
    with the last of its own, in one softmax over both. Norm and rope are not part of it.
    """
    check(kv, gate, bias, previous)
    kv, gate = kv.float(), gate.float() + bias.float()
    if previous is not None:
        dim = kv.shape[2] // 2
        at = previous.clamp(min=0).long()
        none = (previous < 0)[:, None, None]
        before = gate[at, :, :dim].masked_fill(none, float("-inf"))
        kv = torch.cat((kv[at, :, :dim].masked_fill(none, 0.0), kv[:, :, dim:]), 1)
        gate = torch.cat((before, gate[:, :, dim:]), 1)
    return (torch.softmax(gate, 1) * kv).sum(1)
