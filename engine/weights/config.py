"""config.json of a supported model, checked: every number a model is built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.errors import ModelError
from engine.weights.deepseek_config import CompressedConfig, MlaConfig, compressed, mla
from engine.weights.jsonfile import read_json
from engine.weights.moe_config import MoeConfig, deepseek_v3_moe, deepseek_v4_moe, qwen3_moe
from engine.weights.reader import ConfigReader
from engine.weights.rope import RopeScaling

LATENT, COMPRESSED = "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM"
SUPPORTED = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    LATENT,
    COMPRESSED,
)


@dataclass(frozen=True)
class ModelConfig:
    """`attention_bias`: q, k and v have biases; `output_bias`: o too; `qk_norm`: q and k heads are normed.

    With `mla` or `compressed` all heads share one cached entry a token, `head_dim` is its size, and
    `kv_heads` is 1.
    """

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
    moe: MoeConfig | None = None
    mla: MlaConfig | None = None
    compressed: CompressedConfig | None = None
    quantised_block: tuple[int, int] = (128, 128)

    @property
    def parts(self) -> int:
        """How many ranks can share out the attention at most: by key/value heads, heads or output groups."""
        if self.compressed is not None:
            return self.compressed.groups
        return self.kv_heads if self.mla is None else self.heads

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


def _parse(document: dict[str, Any], ends: object, path: Path) -> ModelConfig:
    r = ConfigReader(document, path)
    architecture = _architecture(r)
    if document.get("hidden_act", "silu") not in ("silu", "swish"):
        raise r.wrong(f"hidden_act {document['hidden_act']!r} is not supported (supported: silu)")
    heads, layers = r.integer("num_attention_heads"), r.integer("num_hidden_layers")
    attention = _attention(r, architecture, heads, layers)
    bias = bool(document.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        hidden_size=r.integer("hidden_size"),
        intermediate_size=r.integer("intermediate_size", r.document.get("moe_intermediate_size")),
        layers=layers,
        heads=heads,
        vocab_size=r.integer("vocab_size"),
        rms_norm_eps=r.number("rms_norm_eps", 1e-6),
        max_position=r.integer("max_position_embeddings"),
        tie_embeddings=bool(document.get("tie_word_embeddings", False)),
        attention_bias=bias or architecture == "Qwen2ForCausalLM",
        output_bias=bias and architecture != "Qwen2ForCausalLM",
        mlp_bias=bool(document.get("mlp_bias", False)),
        qk_norm=architecture in ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
        eos=_eos(ends, r),
        moe=_moe(r, architecture, layers),
        quantised_block=_block(r),
        **attention,
    )


def _attention(r: ConfigReader, architecture: str, heads: int, layers: int) -> dict[str, Any]:
    """What of ModelConfig depends on the kind of attention."""
    rope = _rope(r)
    if architecture == COMPRESSED:
        head_dim = r.integer("head_dim")
        main = rope.get("main", {})
        return {
            "kv_heads": 1,
            "head_dim": head_dim,
            "rope_theta": r.number("rope_theta", ConfigReader(main, r.path).number("rope_theta", 10000.0)),
            "rope_scaling": None,
            "compressed": compressed(r, layers, heads, head_dim),
        }
    theta = r.number("rope_theta", ConfigReader(rope, r.path).number("rope_theta", 10000.0))
    common = {"rope_theta": theta, "rope_scaling": RopeScaling.parse(rope, str(r.path))}
    if architecture == LATENT:
        found = mla(r)
        return common | {"kv_heads": 1, "head_dim": found.latent, "mla": found}
    _refuse_window(r)
    kv_heads = r.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise r.wrong(f"{heads} attention heads are not a multiple of {kv_heads} key/value heads")
    head_dim = r.integer("head_dim", r.integer("hidden_size") // heads)
    if head_dim % 2:
        raise r.wrong(f"head_dim {head_dim} is odd, so it has no rotary halves")
    return common | {"kv_heads": kv_heads, "head_dim": head_dim}


def _moe(r: ConfigReader, architecture: str, layers: int) -> MoeConfig | None:
    read = {LATENT: deepseek_v3_moe, COMPRESSED: deepseek_v4_moe, "Qwen3MoeForCausalLM": qwen3_moe}
    return read[architecture](r, layers) if architecture in read else None


def _architecture(r: ConfigReader) -> str:
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


def _block(r: ConfigReader) -> tuple[int, int]:
    """Rows and columns of an FP8 weight that share a scale; refuses weights that are not read."""
    own = r.inside("quantization_config")
    method, algorithm = own.document.get("quant_method", ""), own.document.get("quant_algo")
    if own.document and method != "fp8" and not (method == "modelopt" and algorithm in ("FP8", "NVFP4")):
        raise r.wrong(
            f"quant_method {method!r} is not supported (supported: fp8, modelopt with FP8 or NVFP4)"
        )
    block = own.document.get("weight_block_size") or [128, 128]
    if not isinstance(block, list) or len(block) != 2 or not all(isinstance(n, int) and n > 0 for n in block):
        raise r.wrong(f"weight_block_size is {block!r}, not two positive numbers")
    return block[0], block[1]


def _rope(r: ConfigReader) -> dict[str, Any]:
    for key in ("rope_parameters", "rope_scaling"):
        found = r.document.get(key)
        if found is not None and not isinstance(found, dict):
            raise r.wrong(f"{key} is {found!r}, not an object")
        if found:
            return dict(found)
    return {}


def _refuse_window(r: ConfigReader) -> None:
    """Serving a sliding-window model with full attention would change its answers past the window."""
    window = r.document.get("sliding_window")
    used = r.document.get("use_sliding_window", window is not None)
    if window is not None and used and window < r.integer("max_position_embeddings"):
        raise r.wrong(f"sliding-window attention (window {window}) is not supported")


def _eos(ends: object, r: ConfigReader) -> tuple[int, ...]:
    if ends is None:
        return ()
    found = ends if isinstance(ends, list) else [ends]
    if not all(isinstance(id, int) for id in found):
        raise r.wrong(f"eos_token_id is {ends!r}, not a token id or a list of them")
    return tuple(found)
