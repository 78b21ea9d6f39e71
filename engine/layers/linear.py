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
    """[tokens, hidden] to silu(gate) * up over `part` of the intermediate size; `shape` is of each weight.

    `limit` clips the gate from above and up from both sides.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        names: tuple[str, str],
        shape: tuple[int, int],
        part: tuple[int, int],
        bias: bool,
        shard: Shard,
        limit: float | None = None,
    ) -> None:
        parts = [_rows(checkpoint, n, shape, part, bias) for n in names]
        self.weight = _stacked(parts, shard)
        self.size = part[1] - part[0]
        self._limit = limit

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        both = linear(x, self.weight)
        gate, up = both[:, : self.size], both[:, self.size :]
        if self._limit is not None:
            gate.clamp_(max=self._limit)
            up.clamp_(-self._limit, self._limit)
        return F.silu(gate).mul_(up)


class Linear:
    """Rows `part` (None: all) of each of some weights [out, in], one after the other, without bias."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        weights: list[tuple[str, tuple[int, int], tuple[int, int] | None]],
        shard: Shard,
    ) -> None:
        parts = [
            _rows(checkpoint, name, shape, part or (0, shape[0]), False) for name, shape, part in weights
        ]
        self.weight = _stacked(parts, shard)
        self.sizes = [weight.shape[0] for weight, _ in parts]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight)


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
        return self._comm.all_reduce(self.partial(x))

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum."""
        return linear(x, self.weight)


class HeadLinear:
    """[rows, heads, in] to [rows, heads, out], each head by its own weight [out, in].

    On CPU one product after the other: batched ones are not exact from one number of rows to another.
    """

    def __init__(self, weights: torch.Tensor, shard: Shard) -> None:
        weights = weights.to(shard.device, shard.dtype)
        self._batched = weights.transpose(1, 2) if weights.is_cuda else None
        self._each = [] if weights.is_cuda else [pack(weight.contiguous()) for weight in weights]
        self.rows = max((weight.rows for weight in self._each), default=1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._batched is not None:
            return torch.bmm(x.transpose(0, 1), self._batched).transpose(0, 1)
        each = [linear(x[:, i].contiguous(), weight) for i, weight in enumerate(self._each)]
        return torch.stack(each, 1)


class LmHead:
    """[rows, hidden] to float32 logits [rows, vocab] on rank 0, None elsewhere."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: ModelConfig,
        shard: Shard,
        names: tuple[str, str] = ("lm_head.weight", "model.embed_tokens.weight"),
    ) -> None:
        """`names`: the head's own weight and that of the embedding it may be tied to."""
        name = names[config.tie_embeddings]
        shape = (config.vocab_size, config.hidden_size)
        self.weight = _packed(checkpoint.rows(name, shape, *shard.vocab), None, shard)
        self._comm = shard.comm

    def __call__(self, x: torch.Tensor) -> torch.Tensor | None:
        return self._comm.gather_cat(linear(x, self.weight).float())
