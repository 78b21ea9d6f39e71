"""Rotary frequencies, in float64."""

from __future__ import annotations

import math

import torch


def inverse_frequencies(head_dim: int, theta: float) -> torch.Tensor:
    """[head_dim / 2]: theta ** (-2i / head_dim). Su et al., https://arxiv.org/abs/2104.09864."""
    if head_dim <= 0 or head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is not a positive even number")
    return theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


def llama3_frequencies(
    frequencies: torch.Tensor, factor: float, low: float, high: float, original: int
) -> torch.Tensor:
    """Llama 3.1's scaling, `apply_scaling` of https://github.com/meta-llama/llama-models.

    A frequency that turns fewer than `low` times in `original` positions is divided by `factor`, one that
    turns more than `high` times is kept, those between are blended.
    """
    turns = original * frequencies / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (keep + (1.0 - keep) / factor)
