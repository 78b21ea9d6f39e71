"""Linear layers: QKV and gate/up split by output rows, o and down by input columns, the head by tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engine.layers.shard import Shard
from engine.weights import Checkpoint, ModelConfig
from kernels.ops.linear import PackedLinear, linear, pack


def _packed(weight: torch.Tensor, bias: torch.Tensor | None, shard: Shard) -> PackedLinear:
    """The weight, on the rank's device and in its dtype, laid out for it."""
    placed = bias if bias is None else bias.to(shard.device, shard.dtype)
    return pack(weight.to(shard.device, shard.dtype), placed)


def _rows(
    checkpoint: Checkpoint, name: str, shape: tuple[int, int], part: tuple[int, int], bias: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Output rows `part` of a linear's weight, and of its bias."""
    weight = checkpoint.rows(f"{name}.weight", shape, *part)
    return weight, checkpoint.rows(f"{name}.bias", shape[:1], *part) if bias else None


def _stacked(parts: list[tuple[torch.Tensor, torch.Tensor | None]], shard: Shard) -> PackedLinear:
    weights, biases = zip(*parts, strict=True)
    bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
    return _packed(torch.cat(weights), bias, shard)


class QkvLinear:
    """[tokens, hidden] to this rank's queries, keys and values side by side."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, config: ModelConfig, shard: Shard) -> None:
        d, bias = config.head_dim, config.attention_bias
        parts = []
        for name, heads, (first, last) in (
            ("q_proj", config.heads, shard.heads),
            ("k_proj", config.kv_heads, shard.kv_heads),
            ("v_proj", config.kv_heads, shard.kv_heads),
        ):
            shape = (heads * d, config.hidden_size)
            parts.append(_rows(checkpoint, f"{prefix}.{name}", shape, (first * d, last * d), bias))
        self.weight = _stacked(parts, shard)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight)


class GateUpLinear:
    """[tokens, hidden] to silu(gate) * up over this rank's part of the intermediate size."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, config: ModelConfig, shard: Shard) -> None:
        shape = (config.intermediate_size, config.hidden_size)
        names = (f"{prefix}.gate_proj", f"{prefix}.up_proj")
        parts = [_rows(checkpoint, n, shape, shard.intermediate, config.mlp_bias) for n in names]
        self.weight = _stacked(parts, shard)
        self.size = shard.intermediate[1] - shard.intermediate[0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        both = linear(x, self.weight)
        return F.silu(both[:, : self.size]).mul_(both[:, self.size :])


class RowLinear:
    """This rank's input columns to the whole output, summed over the ranks; the bias is rank 0's to add."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        name: str,
        shape: tuple[int, int],
        part: tuple[int, int],
        bias: bool,
        shard: Shard,
    ) -> None:
        weight = checkpoint.columns(f"{name}.weight", shape, *part)
        own = checkpoint.whole(f"{name}.bias", shape[:1]) if bias and shard.comm.rank == 0 else None
        self.weight = _packed(weight, own, shard)
        self._comm = shard.comm

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._comm.all_reduce(linear(x, self.weight))


class LmHead:
    """[rows, hidden] to float32 logits [rows, vocab] on rank 0, None elsewhere."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, shard: Shard) -> None:
        name = "model.embed_tokens.weight" if config.tie_embeddings else "lm_head.weight"
        shape = (config.vocab_size, config.hidden_size)
        self.weight = _packed(checkpoint.rows(name, shape, *shard.vocab), None, shard)
        self._comm = shard.comm

    def __call__(self, x: torch.Tensor) -> torch.Tensor | None:
        return self._comm.gather_cat(linear(x, self.weight).float())
