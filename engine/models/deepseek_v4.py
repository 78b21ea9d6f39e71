"""DeepSeek-V4: compressed attention, experts and residual streams.

Checkpoints come under the names of the release, or under those that transformers writes, which differ
outside the layers.
"""

from __future__ import annotations

import torch

from engine.layers.compressed import CompressedAttention
from engine.layers.compressed_cache import CompressedCache, CompressedStep
from engine.layers.hyper import HyperConnection, HyperHead, join
from engine.layers.linear import LmHead
from engine.layers.moe import Moe, MoeNames
from engine.layers.norm import Embedding, RmsNorm
from engine.layers.rows import Rows
from engine.layers.shard import Shard
from engine.models.head import sampled_logits
from engine.weights import Checkpoint, CompressedConfig, ModelConfig

NAMES = MoeNames(bias="gate.bias", expert=("w1", "w3", "w2"))
HYPER = ("fn", "base", "scale")


class Block:
    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        layer: int,
        config: ModelConfig,
        cache: CompressedCache,
        shard: Shard,
    ) -> None:
        eps, hidden = config.rms_norm_eps, config.hidden_size
        of_attention, of_experts = ([f"{prefix}.hc_{part}_{n}" for n in HYPER] for part in ("attn", "ffn"))
        self._attention_streams = HyperConnection(checkpoint, _three(of_attention), config, shard)
        self._attention_norm = RmsNorm(checkpoint, f"{prefix}.attn_norm", hidden, eps, shard)
        self._attention = CompressedAttention(checkpoint, f"{prefix}.attn", layer, config, cache, shard)
        self._expert_streams = HyperConnection(checkpoint, _three(of_experts), config, shard)
        self._expert_norm = RmsNorm(checkpoint, f"{prefix}.ffn_norm", hidden, eps, shard)
        self._experts = Moe(checkpoint, f"{prefix}.ffn", layer, config, shard, NAMES)

    @property
    def rows(self) -> int:
        return max(self._attention_streams.rows, self._attention.rows, self._experts.rows)

    def __call__(self, streams: torch.Tensor, pool: torch.Tensor, step: CompressedStep) -> torch.Tensor:
        x, write, mix = self._attention_streams(streams)
        streams = join(streams, self._attention(self._attention_norm(x), pool, step), write, mix)
        x, write, mix = self._expert_streams(streams)
        rows = step.rows
        return join(streams, self._experts(self._expert_norm(x), rows.tokens, rows.real), write, mix)


class DeepseekV4:
    """`layout` says what a page holds; `rows` as of Llama."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, shard: Shard, page_size: int) -> None:
        own = _compressed(config)
        self._cache = CompressedCache(config, own, page_size, shard)
        self.layout, self.index, self._streams = self._cache.layout, self._cache.index, own.streams
        embed = checkpoint.first("embed.weight", "model.embed_tokens.weight").removesuffix(".weight")
        norm = checkpoint.first("norm.weight", "model.norm.weight").removesuffix(".weight")
        head = checkpoint.first("head.weight", "lm_head.weight")
        layers = checkpoint.first("layers.0.attn_norm.weight", "model.layers.0.attn_norm.weight")
        layers = layers.removesuffix(".0.attn_norm.weight")
        hyper = [checkpoint.first(f"hc_head_{n}", f"model.hc_head.hc_{n}") for n in HYPER]
        self._embed = Embedding(checkpoint, embed, config, shard)
        self._blocks = [
            Block(checkpoint, f"{layers}.{i}", i, config, self._cache, shard) for i in range(config.layers)
        ]
        self._last = HyperHead(checkpoint, _three(hyper), config, shard)
        self._norm = RmsNorm(checkpoint, norm, config.hidden_size, config.rms_norm_eps, shard)
        self._head = LmHead(checkpoint, config, shard, (head, f"{embed}.weight"))
        self.rows = shard.agreed(
            max(self._head.weight.rows, self._last.rows, *(block.rows for block in self._blocks))
        )

    def plan(self, rows: Rows) -> CompressedStep:
        return self._cache.plan(rows)

    def __call__(self, pool: torch.Tensor, step: CompressedStep) -> torch.Tensor | None:
        """As of Llama; the pool is bytes, of pages that `layout` describes."""
        streams = self._embed(step.rows.tokens)[:, None].repeat(1, self._streams, 1)
        for block in self._blocks:
            streams = block(streams, pool, step)
        return sampled_logits(self._last(streams), step.rows.sampled, self._norm, self._head, self.rows)


def _three(names: list[str]) -> tuple[str, str, str]:
    fn, base, scale = names
    return fn, base, scale


def _compressed(config: ModelConfig) -> CompressedConfig:
    if config.compressed is None:
        raise ValueError(f"{config.architecture} has no compressed attention")
    return config.compressed
