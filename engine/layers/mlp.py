"""The gated feed-forward block."""

from __future__ import annotations

import torch

from engine.layers.linear import GateUpLinear, RowLinear
from engine.layers.shard import Shard
from engine.weights import Checkpoint

NAMES = ("gate_proj", "up_proj", "down_proj")


class Mlp:
    """`sizes`: hidden, intermediate; `names`: of gate, up and down below `prefix`; `limit`: as below."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        sizes: tuple[int, int],
        bias: bool,
        shard: Shard,
        names: tuple[str, str, str] = NAMES,
        limit: float | None = None,
    ) -> None:
        hidden, intermediate = sizes
        part = shard.part(intermediate)
        gate, up, down = (f"{prefix}.{name}" for name in names)
        self.gate_up = GateUpLinear(checkpoint, (gate, up), (intermediate, hidden), part, bias, shard, limit)
        self.down = RowLinear(checkpoint, down, (hidden, intermediate), part, bias, shard)

    @property
    def rows(self) -> int:
        """From this many rows on, a row's bits do not depend on the others."""
        return max(self.gate_up.weight.rows, self.down.weight.rows)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.gate_up(x))

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum that `__call__` makes over the ranks."""
        return self.down.partial(self.gate_up(x))
