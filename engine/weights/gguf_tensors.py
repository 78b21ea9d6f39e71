"""Which GGUF tensor becomes which tensor of a Hugging Face checkpoint, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from engine.core.errors import ModelError
from engine.weights.gguf_file import GgufFile

_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IGNORED = ("rope_freqs.weight",)  # becomes rope_scaling in config.json


@dataclass(frozen=True)
class Source:
    """One tensor to write: `read()` gives it in the layout Hugging Face uses."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]


def sources(file: GgufFile, heads: int, kv_heads: int) -> list[Source]:
    """Every tensor of the file under its Hugging Face name; ModelError on one that has none."""
    found = []
    for name in file.names:
        if name in _IGNORED:
            continue
        read = partial(file.tensor, name)
        # llama.cpp's converter interleaves the rotary halves of q and k for the llama architecture only.
        if file.architecture == "llama" and ".attn_q." in name:
            read = partial(_unpermuted, file, name, heads)
        elif file.architecture == "llama" and ".attn_k." in name:
            read = partial(_unpermuted, file, name, kv_heads)
        found.append(Source(_renamed(file, name), file.shape(name), file.dtype(name), read))
    return found


def _renamed(file: GgufFile, name: str) -> str:
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in _GLOBAL:
        return f"{_GLOBAL[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _PER_LAYER:
        return f"model.layers.{parts[1]}.{_PER_LAYER[parts[2]]}.{parts[3]}"
    raise ModelError(
        "gguf_unsupported",
        f"{file.path}: tensor {name} has no place in a dense {file.architecture} model.",
        "Only dense llama, qwen2 and qwen3 files can be converted.",
    )


def _unpermuted(file: GgufFile, name: str, heads: int) -> torch.Tensor:
    """[rows, ...] with each head's interleaved rows put back into two halves."""
    w = file.tensor(name)
    if w.shape[0] % (2 * heads):
        text = f"{file.path} is damaged: {name} has {w.shape[0]} rows, no multiple of two for {heads} heads."
        raise ModelError("gguf_damaged", text, "Fetch the file again.")
    halves = w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:])
    return halves.swapaxes(1, 2).reshape(w.shape).contiguous()
