"""Tables are built once; applying them is three operations."""

from __future__ import annotations

import torch


def rope_table(
    frequencies: torch.Tensor, positions: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each [positions, 1, head_dim]; the first half of sin is negated, as `rope` wants it."""
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies.to(torch.float64)
    cos, sin = angles.cos(), angles.sin()
    return (
        torch.cat((cos, cos), -1).unsqueeze(1).to(dtype),
        torch.cat((-sin, sin), -1).unsqueeze(1).to(dtype),
    )


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [tokens, heads, head_dim] turned by its tokens' rows of `rope_table`, each [tokens, 1, head_dim]."""
    if x.dim() != 3 or cos.shape != sin.shape or cos.shape != (x.shape[0], 1, x.shape[2]):
        raise ValueError(f"cos {list(cos.shape)}, sin {list(sin.shape)} do not fit x {list(x.shape)}")
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
