"""The gated feed-forward block."""

from __future__ import annotations

import torch

from engine.layers.linear import GateUpLinear, RowLinear
from engine.layers.shard import Shard
from engine.weights import Checkpoint, ModelConfig


class Mlp:
    def __init__(self, checkpoint: Checkpoint, prefix: str, config: ModelConfig, shard: Shard) -> None:
        self.gate_up = GateUpLinear(checkpoint, prefix, config, shard)
        shape = (config.hidden_size, config.intermediate_size)
        self.down = RowLinear(
            checkpoint, f"{prefix}.down_proj", shape, shard.intermediate, config.mlp_bias, shard
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.gate_up(x))
