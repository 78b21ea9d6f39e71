"""Tables are built once; applying them is three operations."""

from __future__ import annotations

import torch


def rope_table(
    frequencies: torch.Tensor, positions: int, dtype: torch.dtype, interleaved: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each [positions, 1, head_dim]; sin is negated at the first of a pair, as `rope` wants.

    A pair is (i, i + head_dim / 2), or (2i, 2i + 1) when `interleaved`.
    """
    return rope_rows(frequencies, torch.arange(positions), dtype, interleaved)


def rope_rows(
    frequencies: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype, interleaved: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of `rope_table` at these positions [n], on their device."""
    angles = positions.to(torch.float64)[:, None] * frequencies.to(positions.device, torch.float64)
    cos, sin = (angles.cos(), angles.cos()), (-angles.sin(), angles.sin())
    both = [torch.stack(p, -1).flatten(-2) if interleaved else torch.cat(p, -1) for p in (cos, sin)]
    return both[0].unsqueeze(1).to(dtype), both[1].unsqueeze(1).to(dtype)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """x [tokens, heads, head_dim] turned by its tokens' rows of `rope_table`, each [tokens, 1, head_dim].

    In x's dtype, whatever that of the rows is.
    """
    check(x, cos, sin)
    return torch.addcmul(x * cos, _partner(x, interleaved), sin).to(x.dtype)


def rope_inverse(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Turned back: `rope_inverse(rope(x, ...), ...)` is x up to rounding."""
    check(x, cos, sin)
    return torch.addcmul(x * cos, _partner(x, interleaved), sin, value=-1).to(x.dtype)


def check(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    if x.dim() != 3 or x.shape[2] % 2 or cos.shape != sin.shape or cos.shape != (x.shape[0], 1, x.shape[2]):
        raise ValueError(f"cos {list(cos.shape)}, sin {list(sin.shape)} do not fit x {list(x.shape)}")


def _partner(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """The other one of each element's pair."""
    if interleaved:
        return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return x.roll(x.shape[-1] // 2, -1)
