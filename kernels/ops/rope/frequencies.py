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


def yarn_frequencies(
    frequencies: torch.Tensor, theta: float, factor: float, fast: float, slow: float, original: int
) -> torch.Tensor:
    """YaRN's scaling, https://arxiv.org/abs/2309.00071, with the ramp over whole dimensions as released.

    A frequency that turns more than `fast` times in `original` positions is kept, one that turns fewer than
    `slow` times is divided by `factor`, those between are blended.
    """
    dim = 2 * frequencies.shape[0]

    def dimension(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(dimension(fast)), 0), min(math.ceil(dimension(slow)), dim - 1)
    ramp = torch.arange(frequencies.shape[0], dtype=torch.float64) - low
    divided = (ramp / (high - low if high != low else 0.001)).clamp(0.0, 1.0)
    return frequencies * (1.0 - divided) + frequencies / factor * divided


def yarn_scale(factor: float, mscale: float = 1.0) -> float:
    """By how much attention is sharpened for a context `factor` times as long."""
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0
