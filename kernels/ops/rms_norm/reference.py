"""Zhang and Sennrich, https://arxiv.org/abs/1910.07467."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def check(x: torch.Tensor, weight: torch.Tensor) -> None:
    if weight.dim() != 1 or x.shape[-1:] != weight.shape or x.dtype != weight.dtype:
        raise ValueError(
            f"weight {list(weight.shape)} {weight.dtype} does not fit x {list(x.shape)} {x.dtype}"
        )


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x [..., n] / sqrt(mean(x^2) + eps) * weight [n], in x's dtype; ValueError when they do not fit."""
    check(x, weight)
    return F.rms_norm(x, weight.shape, weight, eps)
