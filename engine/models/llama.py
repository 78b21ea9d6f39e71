"""The Llama family: Llama, Mistral, Qwen2 (q/k/v biases) and Qwen3 (q/k norms), by configuration."""

from __future__ import annotations

import torch

from engine.layers.attention import Attention
from engine.layers.linear import LmHead
from engine.layers.mlp import Mlp
from engine.layers.norm import Embedding, RmsNorm
from engine.layers.shard import Shard
from engine.layers.step import Step
from engine.weights import Checkpoint, ModelConfig


class Block:
    def __init__(self, checkpoint: Checkpoint, layer: int, config: ModelConfig, shard: Shard) -> None:
        prefix = f"model.layers.{layer}"
        eps, hidden = config.rms_norm_eps, config.hidden_size
        self._attention_norm = RmsNorm(checkpoint, f"{prefix}.input_layernorm", hidden, eps, shard)
        self.attention = Attention(checkpoint, f"{prefix}.self_attn", layer, config, shard)
        self._mlp_norm = RmsNorm(checkpoint, f"{prefix}.post_attention_layernorm", hidden, eps, shard)
        self.mlp = Mlp(checkpoint, f"{prefix}.mlp", config, shard)

    def __call__(self, x: torch.Tensor, pool: torch.Tensor, step: Step) -> torch.Tensor:
        x = x + self.attention(self._attention_norm(x), pool, step)
        return x + self.mlp(self._mlp_norm(x))


class Llama:
    """`rows`: with at least this many token rows in a step, a row's bits do not depend on the others."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, shard: Shard) -> None:
        self._embed = Embedding(checkpoint, "model.embed_tokens", config, shard)
        self._blocks = [Block(checkpoint, i, config, shard) for i in range(config.layers)]
        self._norm = RmsNorm(checkpoint, "model.norm", config.hidden_size, config.rms_norm_eps, shard)
        self._head = LmHead(checkpoint, config, shard)
        block = self._blocks[0]
        linears = (block.attention.qkv, block.attention.out, block.mlp.gate_up, block.mlp.down, self._head)
        self.rows = max(layer.weight.rows for layer in linears)

    def __call__(self, pool: torch.Tensor, step: Step) -> torch.Tensor | None:
        """float32 logits [sampled, vocab] on rank 0; every rank writes its KV into the pool.

        None on other ranks, and on all when the step samples nothing.
        """
        x = self._embed(step.tokens)
        for block in self._blocks:
            x = block(x, pool, step)
        wanted = step.sampled.shape[0]
        if wanted == 0:
            return None
        picked = step.sampled
        if wanted < self.rows:
            picked = torch.cat((picked, picked[-1:].expand(self.rows - wanted)))
        logits = self._head(self._norm(x.index_select(0, picked)))
        return None if logits is None else logits[:wanted]
