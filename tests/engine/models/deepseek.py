"""Tiny DeepSeek checkpoints, made with transformers, and transformers' answer under this engine's two rules.

`python -m tests.engine.models.deepseek deepseek_v4 FOLDER` writes one that can be served: it has a tokenizer.

The rules: of equal index scores the lowest index wins, where torch.topk takes any, and index-K and its
queries are bfloat16. Scores of a relu are often exactly equal, so without the first nothing agrees.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.overrides import TorchFunctionMode
from transformers import (
    DeepseekV4Config,
    DeepseekV4ForCausalLM,
    DeepseekV32Config,
    DeepseekV32ForCausalLM,
    PreTrainedModel,
)

COMMON: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "moe_intermediate_size": 20,
    "num_attention_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "q_lora_rank": 24,
    "index_head_dim": 16,
    "index_n_heads": 8,
    "max_position_embeddings": 512,
    "eos_token_id": 7,
    "bos_token_id": 1,
}
V32: dict[str, Any] = COMMON | {
    "intermediate_size": 70,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "index_topk": 8,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 64,
}
V4: dict[str, Any] = COMMON | {
    "num_hidden_layers": 5,
    "head_dim": 32,
    "qk_rope_head_dim": 8,
    "layer_types": [
        "sliding_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    ],
    "mlp_layer_types": ["hash_moe", "moe", "moe", "moe", "moe"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    "sliding_window": 6,
    "o_groups": 4,
    "o_lora_rank": 12,
    "index_topk": 4,
    "hc_mult": 2,
    "hc_sinkhorn_iters": 4,
    "rope_parameters": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    },
}
DEEPSEEKS: dict[str, Callable[..., PreTrainedModel]] = {
    "deepseek_v32": lambda **o: DeepseekV32ForCausalLM(DeepseekV32Config(**V32 | o)),
    "deepseek_v32_yarn": lambda **o: DeepseekV32ForCausalLM(
        DeepseekV32Config(**V32 | o, rope_parameters=YARN)
    ),
    "deepseek_v4": lambda **o: DeepseekV4ForCausalLM(DeepseekV4Config(**V4 | o)),
}


def build_deepseek(name: str, folder: Path, seed: int = 3, **other: Any) -> PreTrainedModel:
    """A seeded random model, saved to `folder`; what starts as zero (sinks, tables, biases) is random too.

    `other` are values of its config that differ.
    """
    torch.manual_seed(seed)
    model = DEEPSEEKS[name](**other).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            wide = parameter.dim() > 1 and "position_bias" not in key
            scale = parameter.shape[-1] ** -0.5 if wide else 0.4
            centre = 0.8 if key.endswith("norm.weight") else 0.0
            parameter.copy_(torch.randn_like(parameter) * scale + centre)
        for key, buffer in model.named_buffers():
            if key.endswith("tid2eid"):
                count = model.config.n_routed_experts
                for row in buffer:
                    row.copy_(torch.randperm(count)[: row.shape[0]])
            elif key.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """For a module that imports it: products as small as these only lose by threads that wait for a core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class _Rules(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.topk, torch.Tensor.topk):
            return _stable_topk(*args, **(kwargs or {}))
        if func in (torch.matmul, torch.Tensor.matmul) and _is_index_score(*args):
            args = tuple(t.bfloat16().float() for t in args)
        return func(*args, **(kwargs or {}))


def _stable_topk(x: torch.Tensor, k: int, dim: int = -1, **_: Any) -> Any:
    found = torch.sort(x, dim=dim, descending=True, stable=True)
    return torch.return_types.topk((found.values.narrow(dim, 0, k), found.indices.narrow(dim, 0, k)))


def _is_index_score(a: torch.Tensor, b: torch.Tensor) -> bool:
    """q [batch, rows, heads, dim] times k [batch, 1, dim, entries], of no other product of these models."""
    return a.dim() == b.dim() == 4 and b.shape[1] == 1 and a.shape[1] > 1


def reference(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """float32 [tokens, vocab]: transformers' logits of one pass over them."""
    with torch.no_grad(), _Rules():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def build_served(name: str, folder: Path) -> None:
    """A checkpoint whose tokens are bytes, after 8 special ones, and that can chat."""
    build_deepseek(name, folder, vocab_size=264, max_position_embeddings=2048)
    special = [f"<{i}>" for i in range(8)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate([*special, *alphabet])}, []))
    tokenizer.add_special_tokens(special)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}<2>{{ m['content'] }}{% endfor %}<3>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(DEEPSEEKS))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    build_served(args.name, args.folder)
