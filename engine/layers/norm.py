"""Norm and embedding: replicated on every rank."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engine.layers.shard import Shard
from engine.weights import Checkpoint, ModelConfig
from kernels.ops.rms_norm import rms_norm


class RmsNorm:
    def __init__(self, checkpoint: Checkpoint, name: str, size: int, eps: float, shard: Shard) -> None:
        self.weight = checkpoint.whole(f"{name}.weight", (size,)).to(shard.device, shard.dtype)
        self._eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self._eps)


class Embedding:
    """int64 [tokens] to [tokens, hidden]."""

    def __init__(self, checkpoint: Checkpoint, name: str, config: ModelConfig, shard: Shard) -> None:
        shape = (config.vocab_size, config.hidden_size)
        self.weight = checkpoint.whole(f"{name}.weight", shape).to(shard.device, shard.dtype)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.weight)
