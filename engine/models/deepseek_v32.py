"""DeepSeek-V3.2: latent attention with a lightning indexer, and experts."""

from __future__ import annotations

import torch

from engine.layers.latent import LatentAttention, LatentCache, LatentStep
from engine.layers.linear import LmHead
from engine.layers.mlp import Mlp
from engine.layers.moe import Moe
from engine.layers.norm import Embedding, RmsNorm
from engine.layers.rows import Rows
from engine.layers.shard import Shard
from engine.models.head import sampled_logits
from engine.weights import Checkpoint, MlaConfig, ModelConfig


class Block:
    def __init__(
        self,
        checkpoint: Checkpoint,
        layer: int,
        config: ModelConfig,
        cache: LatentCache,
        shard: Shard,
    ) -> None:
        prefix = f"model.layers.{layer}"
        eps, hidden = config.rms_norm_eps, config.hidden_size
        self._attention_norm = RmsNorm(checkpoint, f"{prefix}.input_layernorm", hidden, eps, shard)
        self._attention = LatentAttention(checkpoint, f"{prefix}.self_attn", layer, config, cache, shard)
        self._mlp_norm = RmsNorm(checkpoint, f"{prefix}.post_attention_layernorm", hidden, eps, shard)
        self._mlp: Mlp | Moe
        if config.moe is None or config.moe.layers[layer] == "dense":
            sizes = (hidden, config.intermediate_size)
            self._mlp = Mlp(checkpoint, f"{prefix}.mlp", sizes, False, shard)
        else:
            self._mlp = Moe(checkpoint, f"{prefix}.mlp", layer, config, shard)

    @property
    def rows(self) -> int:
        return max(self._attention.rows, self._mlp.rows)

    def __call__(self, x: torch.Tensor, pool: torch.Tensor, step: LatentStep) -> torch.Tensor:
        x = x + self._attention(self._attention_norm(x), pool, step)
        y, rows = self._mlp_norm(x), step.rows
        return x + (self._mlp(y) if isinstance(self._mlp, Mlp) else self._mlp(y, rows.tokens, rows.real))


class DeepseekV32:
    """`layout` says what a page holds; `rows` as of Llama."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, shard: Shard, page_size: int) -> None:
        cache = LatentCache(config, _mla(config), page_size, shard)
        self.layout, self.index, self._cache = cache.layout, cache.index, cache
        self._embed = Embedding(checkpoint, "model.embed_tokens", config, shard)
        self._blocks = [Block(checkpoint, i, config, cache, shard) for i in range(config.layers)]
        self._norm = RmsNorm(checkpoint, "model.norm", config.hidden_size, config.rms_norm_eps, shard)
        self._head = LmHead(checkpoint, config, shard)
        self.rows = shard.agreed(max(self._head.weight.rows, *(block.rows for block in self._blocks)))

    def plan(self, rows: Rows) -> LatentStep:
        return self._cache.plan(rows)

    def __call__(self, pool: torch.Tensor, step: LatentStep) -> torch.Tensor | None:
        """As of Llama; the pool is bytes, of pages that `layout` describes."""
        x = self._embed(step.rows.tokens)
        for block in self._blocks:
            x = block(x, pool, step)
        return sampled_logits(x, step.rows.sampled, self._norm, self._head, self.rows)


def _mla(config: ModelConfig) -> MlaConfig:
    if config.mla is None:
        raise ValueError(f"{config.architecture} has no latent attention")
    return config.mla
