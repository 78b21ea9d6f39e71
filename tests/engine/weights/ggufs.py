"""GGUF files written in the test, from a tiny checkpoint the way llama.cpp's converter does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import torch

from tests.engine.models.tiny import SIZES

_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def byte_tokens() -> list[str]:
    """The 256 bytes as GPT-2 spells them, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    names = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [names[b] for b in range(256)]


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges: bytes, `12`, `123`, `ab`, and two special tokens at the end."""
    return [*byte_tokens(), "12", "123", "ab", "<|end|>", "<|begin|>"], ["1 2", "12 3", "a b"]


def write_gguf(
    path: Path,
    architecture: str,
    weights: dict[str, torch.Tensor],
    *,
    head_dim: int = 8,
    pre: str = "smollm",
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    rope_divisors: torch.Tensor | None = None,
    skip: tuple[str, ...] = (),
    **metadata: Any,
) -> None:
    """`kind` quantises matrices; `skip` leaves GGUF tensors out; `metadata` adds strings or booleans."""
    w = gguf.GGUFWriter(path, architecture)
    w.add_block_count(SIZES["num_hidden_layers"])
    w.add_context_length(SIZES["max_position_embeddings"])
    w.add_embedding_length(SIZES["hidden_size"])
    w.add_feed_forward_length(SIZES["intermediate_size"])
    w.add_head_count(SIZES["num_attention_heads"])
    w.add_head_count_kv(SIZES["num_key_value_heads"])
    w.add_key_length(head_dim)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(10000.0)
    tokens, merges = vocabulary()
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    w.add_token_merges(merges)
    w.add_eos_token_id(len(tokens) - 2)
    w.add_bos_token_id(len(tokens) - 1)
    w.add_chat_template(TEMPLATE)
    for key, value in metadata.items():
        (w.add_bool if isinstance(value, bool) else w.add_string)(key.replace("__", "."), value)
    if rope_divisors is not None:
        w.add_tensor("rope_freqs.weight", rope_divisors.float().numpy())
    for name, tensor in weights.items():
        renamed = _renamed(name)
        if renamed in skip:
            continue
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = SIZES["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
        array = tensor.float().contiguous().numpy()
        if tensor.dim() == 1 or kind == gguf.GGMLQuantizationType.F32:
            w.add_tensor(renamed, array)
        else:
            w.add_tensor(renamed, gguf.quantize(array, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _renamed(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{kind}"
    layer, _, inner = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_NAMES[inner]}.{kind}"
