"""The Llama family: Llama, Mistral, Qwen2 (q/k/v biases), Qwen3 (q/k norms, experts), by configuration."""

from __future__ import annotations

import torch

from engine.layers.attention import Attention
from engine.layers.linear import LmHead
from engine.layers.mlp import Mlp
from engine.layers.moe import Moe
from engine.layers.norm import Embedding, RmsNorm
from engine.layers.shard import Shard
from engine.layers.step import Step
from engine.models.head import sampled_logits
from engine.weights import Checkpoint, ModelConfig


class Block:
    def __init__(self, checkpoint: Checkpoint, layer: int, config: ModelConfig, shard: Shard) -> None:
        prefix = f"model.layers.{layer}"
        eps, hidden = config.rms_norm_eps, config.hidden_size
        self._attention_norm = RmsNorm(checkpoint, f"{prefix}.input_layernorm", hidden, eps, shard)
        self.attention = Attention(checkpoint, f"{prefix}.self_attn", layer, config, shard)
        self._mlp_norm = RmsNorm(checkpoint, f"{prefix}.post_attention_layernorm", hidden, eps, shard)
        self.mlp: Mlp | Moe
        if config.moe is None or config.moe.layers[layer] == "dense":
            sizes = (hidden, config.intermediate_size)
            self.mlp = Mlp(checkpoint, f"{prefix}.mlp", sizes, config.mlp_bias, shard)
        else:
            self.mlp = Moe(checkpoint, f"{prefix}.mlp", layer, config, shard)

    @property
    def rows(self) -> int:
        return max(self.attention.qkv.weight.rows, self.attention.out.weight.rows, self.mlp.rows)

    def __call__(self, x: torch.Tensor, pool: torch.Tensor, step: Step) -> torch.Tensor:
        x = x + self.attention(self._attention_norm(x), pool, step)
        y = self._mlp_norm(x)
        return x + (self.mlp(y) if isinstance(self.mlp, Mlp) else self.mlp(y, step.tokens, step.real))


class Llama:
    """`rows`: with at least this many token rows in a step, a row's bits do not depend on the others."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, shard: Shard) -> None:
        self._embed = Embedding(checkpoint, "model.embed_tokens", config, shard)
        self._blocks = [Block(checkpoint, i, config, shard) for i in range(config.layers)]
        self._norm = RmsNorm(checkpoint, "model.norm", config.hidden_size, config.rms_norm_eps, shard)
        self._head = LmHead(checkpoint, config, shard)
        self.rows = shard.agreed(max(self._head.weight.rows, *(block.rows for block in self._blocks)))

    def __call__(self, pool: torch.Tensor, step: Step) -> torch.Tensor | None:
        """float32 logits [sampled, vocab] on rank 0; every rank writes its KV into the pool.

        None on other ranks, and on all when the step samples nothing.
        """
        x = self._embed(step.tokens)
        for block in self._blocks:
            x = block(x, pool, step)
        return sampled_logits(x, step.sampled, self._norm, self._head, self.rows)
