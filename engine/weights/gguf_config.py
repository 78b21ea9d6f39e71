"""config.json, tokenizer_config.json and generation_config.json from a GGUF file's metadata."""

from __future__ import annotations

from typing import Any

import torch

from engine.core.errors import ModelError
from engine.weights.gguf_file import GgufFile
from engine.weights.rope import RopeScaling, scaled_frequencies

_ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
# Llama 3.1 and later differ in `factor` alone (8 or 32); a file keeps the finished per-frequency divisors.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def model_config(file: GgufFile) -> dict[str, Any]:
    """config.json of the model; ModelError for an architecture that cannot be served."""
    if file.architecture not in _ARCHITECTURES:
        raise ModelError(
            "unsupported_architecture",
            f"{file.path}: architecture {file.architecture} is not supported "
            f"(supported: {', '.join(_ARCHITECTURES)}).",
        )
    architecture, model_type = _ARCHITECTURES[file.architecture]
    heads, hidden = int(file.arch("attention.head_count")), int(file.arch("embedding_length"))
    head_dim = int(file.arch_get("attention.key_length") or hidden // heads)
    theta = float(file.arch_get("rope.freq_base") or 10000.0)
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": int(file.arch("feed_forward_length")),
        "num_hidden_layers": int(file.arch("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(file.arch_get("attention.head_count_kv") or heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": float(f"{file.arch('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": theta,
        "max_position_embeddings": int(file.arch("context_length")),
        "vocab_size": file.shape("token_embd.weight")[0],
        "tie_word_embeddings": "output.weight" not in file.names,
        "attention_bias": file.architecture == "llama" and "blk.0.attn_q.bias" in file.names,
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": file.get("tokenizer.ggml.padding_token_id"),
        "torch_dtype": str(file.dtype("blk.0.attn_q.weight")).removeprefix("torch."),
    }
    scaling = _rope_scaling(file, head_dim, theta)
    if scaling:
        config["rope_scaling"] = scaling
    return config


def _rope_scaling(file: GgufFile, head_dim: int, theta: float) -> dict[str, Any] | None:
    kind = file.arch_get("rope.scaling.type")
    if kind == "linear":
        return {"rope_type": "linear", "factor": float(file.arch("rope.scaling.factor"))}
    if kind not in (None, "none"):
        raise ModelError("gguf_unsupported", f"{file.path}: rope scaling {kind} is not supported.")
    if "rope_freqs.weight" not in file.names:
        return None
    divisors = file.tensor("rope_freqs.weight").to(torch.float64)
    document = {"rope_type": "llama3", "factor": float(divisors.max()), **_LLAMA3}
    plain = scaled_frequencies(head_dim, theta, None)
    rebuilt = plain / scaled_frequencies(head_dim, theta, RopeScaling.parse(document, str(file.path)))
    if not torch.allclose(rebuilt, divisors, rtol=1e-4):
        raise ModelError(
            "gguf_unsupported",
            f"{file.path}: rope_freqs.weight is not llama3 rope scaling.",
            "Use the model's Hugging Face folder instead.",
        )
    return document


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    tokens: list[str] = file.value("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(file.get("tokenizer.ggml.add_bos_token") or False),
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(file.arch("context_length")),
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        id = file.get(f"tokenizer.ggml.{key}_token_id")
        if id is not None and id < len(tokens):
            config[f"{name}_token"] = tokens[id]
    template = file.get("tokenizer.chat_template")
    if template:
        config["chat_template"] = template
    return config


def generation_config(file: GgufFile) -> dict[str, Any]:
    """`eos_token_id` lists the end of text and the end of a turn where they differ."""
    ends = [file.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot")]
    config = {
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": list(dict.fromkeys(id for id in ends if id is not None)),
        "pad_token_id": file.get("tokenizer.ggml.padding_token_id"),
    }
    return {key: value for key, value in config.items() if value is not None}
