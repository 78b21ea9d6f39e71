"""Grouped-query attention over the paged pool, this rank's heads."""

from __future__ import annotations

import torch

from engine.layers.linear import QkvLinear, RowLinear
from engine.layers.norm import RmsNorm
from engine.layers.shard import Shard
from engine.layers.step import Step
from engine.weights import Checkpoint, ModelConfig
from kernels.ops.kv_write import kv_write
from kernels.ops.paged_decode_attention import paged_decode_attention
from kernels.ops.paged_prefill_attention import paged_prefill_attention
from kernels.ops.rope import rope
from kernels.streams.interface import MAIN, SIDE


class Attention:
    def __init__(
        self, checkpoint: Checkpoint, prefix: str, layer: int, config: ModelConfig, shard: Shard
    ) -> None:
        d = config.head_dim
        self._layer, self._streams = layer, shard.streams
        self._head_dim = d
        self._scale = d**-0.5
        self._heads = shard.heads[1] - shard.heads[0]
        self._turned = self._heads + shard.kv_heads[1] - shard.kv_heads[0]  # heads that rope turns: q and k
        self.qkv = QkvLinear(checkpoint, prefix, config, shard)
        self.out = RowLinear(
            checkpoint,
            f"{prefix}.o_proj",
            (config.hidden_size, config.heads * d),
            (shard.heads[0] * d, shard.heads[1] * d),
            config.output_bias,
            shard,
        )
        self._norms: tuple[RmsNorm, RmsNorm] | None = None
        if config.qk_norm:
            self._norms = (
                RmsNorm(checkpoint, f"{prefix}.q_norm", d, config.rms_norm_eps, shard),
                RmsNorm(checkpoint, f"{prefix}.k_norm", d, config.rms_norm_eps, shard),
            )

    def __call__(self, x: torch.Tensor, pool: torch.Tensor, step: Step) -> torch.Tensor:
        """[rows, hidden] for x of that shape; writes the rows' keys and values into the pool first."""
        heads = self.qkv(x).view(x.shape[0], -1, self._head_dim)
        both, v = heads[:, : self._turned], heads[:, self._turned :]
        if self._norms is None:
            turned = rope(both, step.cos, step.sin)
            q, k = turned[:, : self._heads], turned[:, self._heads :]
            kv_write(pool, self._layer, step.kv_rows, k[: step.real], v[: step.real])
        else:
            q = self._normed(self._norms, both[:, : self._heads], both[:, self._heads :], v, pool, step)
        return self.out(self._attend(q, pool, step).view(x.shape[0], -1))

    def _normed(
        self,
        norms: tuple[RmsNorm, RmsNorm],
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        pool: torch.Tensor,
        step: Step,
    ) -> torch.Tensor:
        """Queries, normed and turned, while keys are so too and written. Without norms, turning both at once
        leaves nothing to be done beside it."""
        streams, (q_norm, k_norm) = self._streams, norms

        def write() -> None:
            turned = rope(k_norm(k), step.cos, step.sin)
            kv_write(pool, self._layer, step.kv_rows, turned[: step.real], v[: step.real])

        reads = [k, v, step.cos, step.sin, step.kv_rows]
        streams.fork(MAIN, SIDE)
        streams.launch(SIDE, "keys", write, reads=reads, writes=[pool])
        q = rope(q_norm(q), step.cos, step.sin)
        streams.join(MAIN, SIDE)
        return q

    def _attend(self, q: torch.Tensor, pool: torch.Tensor, step: Step) -> torch.Tensor:
        """[rows, heads, head_dim], zero in padding rows."""
        out = q.new_zeros(q.shape)
        first = 0
        if step.decode is not None:
            first = step.decode.batch
            out[:first] = paged_decode_attention(q[:first], pool, self._layer, step.decode, self._scale)
        for first, last, plan in step.prefills:
            out[first:last] = paged_prefill_attention(q[first:last], pool, self._layer, plan, self._scale)
        return out
