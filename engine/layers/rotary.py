"""Rotary position embedding by the positions of a step, for windows too long for a table of all of them."""

from __future__ import annotations

import torch

from engine.layers.shard import Shard
from engine.weights import RopeScaling
from engine.weights.rope import scaled_frequencies
from kernels.ops.rope import rope, rope_inverse, rope_rows

Turn = tuple[torch.Tensor, torch.Tensor]


class Rotary:
    """Turns `dim` channels, by neighbours when `interleaved`, else by halves."""

    def __init__(
        self, dim: int, theta: float, scaling: RopeScaling | None, shard: Shard, interleaved: bool
    ) -> None:
        self._frequencies = scaled_frequencies(dim, theta, scaling).to(shard.device)
        self._factor = scaling.attention_factor if scaling else 1.0
        self._dtype, self._interleaved = shard.dtype, interleaved
        self.dim = dim

    def at(self, positions: torch.Tensor) -> Turn:
        """cos and sin for int64 [rows]."""
        cos, sin = rope_rows(self._frequencies, positions, self._dtype, self._interleaved)
        return cos * self._factor, sin * self._factor

    def __call__(self, x: torch.Tensor, turn: Turn) -> torch.Tensor:
        """x [rows, heads, dim] turned."""
        return rope(x, *turn, self._interleaved)

    def back(self, x: torch.Tensor, turn: Turn) -> torch.Tensor:
        return rope_inverse(x, *turn, self._interleaved)
