"""config.json of a supported model, checked: every number a model is built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.errors import ModelError
from engine.weights.jsonfile import read_json
from engine.weights.rope import RopeScaling

SUPPORTED = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True)
class ModelConfig:
    """`attention_bias`: q, k and v have biases; `output_bias`: o too; `qk_norm`: q and k heads are normed."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_position: int
    tie_embeddings: bool
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    eos: tuple[int, ...]

    @classmethod
    def load(cls, folder: Path) -> ModelConfig:
        """From a model folder; ModelError naming the file and the key that is missing or wrong."""
        path = folder / "config.json"
        document = read_json(path)
        generation = folder / "generation_config.json"
        ends = document.get("eos_token_id")
        if generation.exists():
            ends = read_json(generation).get("eos_token_id", ends)
        return _parse(document, ends, path)


class _Reader:
    def __init__(self, document: dict[str, Any], path: Path) -> None:
        self.document = document
        self.path = path

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.document.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelError(
                "config_key_missing", f"{self.path} has no {key}.", "Fetch or convert the model again."
            )
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise self.wrong(f"{key} is {value!r}, not a positive whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.document.get(key, default)
        if value is None:
            raise ModelError(
                "config_key_missing", f"{self.path} has no {key}.", "Fetch or convert the model again."
            )
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
            raise self.wrong(f"{key} is {value!r}, not a positive number")
        return float(value)

    def wrong(self, what: str) -> ModelError:
        return ModelError("config_value", f"{self.path}: {what}.", "Fetch or convert the model again.")


def _parse(document: dict[str, Any], ends: object, path: Path) -> ModelConfig:
    r = _Reader(document, path)
    architecture = _architecture(r)
    heads, hidden = r.integer("num_attention_heads"), r.integer("hidden_size")
    kv_heads = r.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise r.wrong(f"{heads} attention heads are not a multiple of {kv_heads} key/value heads")
    if document.get("hidden_act", "silu") not in ("silu", "swish"):
        raise r.wrong(f"hidden_act {document['hidden_act']!r} is not supported (supported: silu)")
    _refuse_window(r)
    if "quantization_config" in document:
        raise r.wrong("quantised checkpoints are not supported; use the float16, bfloat16 or float32 one")
    rope = _rope(r)
    theta = r.number("rope_theta", _Reader(rope, path).number("rope_theta", 10000.0))
    bias = bool(document.get("attention_bias", False))
    head_dim = r.integer("head_dim", hidden // heads)
    if head_dim % 2:
        raise r.wrong(f"head_dim {head_dim} is odd, so it has no rotary halves")
    return ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=r.integer("intermediate_size"),
        layers=r.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=r.integer("vocab_size"),
        rms_norm_eps=r.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=RopeScaling.parse(rope, str(path)),
        max_position=r.integer("max_position_embeddings"),
        tie_embeddings=bool(document.get("tie_word_embeddings", False)),
        attention_bias=bias or architecture == "Qwen2ForCausalLM",
        output_bias=bias and architecture != "Qwen2ForCausalLM",
        mlp_bias=bool(document.get("mlp_bias", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        eos=_eos(ends, r),
    )


def _architecture(r: _Reader) -> str:
    names = r.document.get("architectures")
    if not isinstance(names, list) or not names:
        raise ModelError(
            "config_key_missing", f"{r.path} has no architectures.", "Fetch or convert the model again."
        )
    if names[0] not in SUPPORTED:
        raise ModelError(
            "unsupported_architecture",
            f"{r.path}: architecture {names[0]} is not supported (supported: {', '.join(SUPPORTED)}).",
        )
    return str(names[0])


def _rope(r: _Reader) -> dict[str, Any]:
    for key in ("rope_parameters", "rope_scaling"):
        found = r.document.get(key)
        if found is not None and not isinstance(found, dict):
            raise r.wrong(f"{key} is {found!r}, not an object")
        if found:
            return dict(found)
    return {}


def _refuse_window(r: _Reader) -> None:
    """Serving a sliding-window model with full attention would change its answers past the window."""
    window = r.document.get("sliding_window")
    used = r.document.get("use_sliding_window", window is not None)
    if window is not None and used and window < r.integer("max_position_embeddings"):
        raise r.wrong(f"sliding-window attention (window {window}) is not supported")


def _eos(ends: object, r: _Reader) -> tuple[int, ...]:
    if ends is None:
        return ()
    found = ends if isinstance(ends, list) else [ends]
    if not all(isinstance(id, int) for id in found):
        raise r.wrong(f"eos_token_id is {ends!r}, not a token id or a list of them")
    return tuple(found)
