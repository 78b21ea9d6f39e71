"""What DeepSeek's attentions are built from, as config.json describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.weights.reader import ConfigReader
from engine.weights.rope import RopeScaling

Span = Literal["window", "sparse", "heavy"]
_SPANS: dict[str, Span] = {
    "sliding_attention": "window",
    "compressed_sparse_attention": "sparse",
    "heavily_compressed_attention": "heavy",
}


@dataclass(frozen=True)
class IndexConfig:
    """The lightning indexer: `topk` entries are chosen by `heads` heads of `dim`."""

    heads: int
    dim: int
    topk: int


@dataclass(frozen=True)
class MlaConfig:
    """Multi-head latent attention with an indexer (V3.2). A query head is [nope | rope], a value `value`."""

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    index: IndexConfig

    @property
    def latent(self) -> int:
        """What is cached of a token: its latent and its rotary key."""
        return self.kv_rank + self.rope


@dataclass(frozen=True)
class CompressedConfig:
    """Shared-KV attention (V4): one key that is its own value, `rope` of its channels are rotary, the last.

    `spans[i]` is what layer i sees beside its `window`: nothing, the best of entries of `sparse` tokens, or
    all entries of `heavy` tokens. Layers with entries have the other theta and scaling. Heads are put out in
    `groups` by matrices of rank `out_rank`. `streams`, `sinkhorn`, `eps` are of the hyper-connections.
    """

    q_rank: int
    rope: int
    window: int
    spans: tuple[Span, ...]
    sparse: int
    heavy: int
    theta: float
    scaling: RopeScaling | None
    groups: int
    out_rank: int
    streams: int
    sinkhorn: int
    eps: float
    index: IndexConfig


def _index(r: ConfigReader) -> IndexConfig:
    return IndexConfig(r.integer("index_n_heads"), r.integer("index_head_dim"), r.integer("index_topk"))


def mla(r: ConfigReader) -> MlaConfig:
    if r.document.get("attention_bias"):
        raise r.wrong("attention_bias is not supported for this architecture")
    found = MlaConfig(
        r.integer("q_lora_rank"),
        r.integer("kv_lora_rank"),
        r.integer("qk_nope_head_dim"),
        r.integer("qk_rope_head_dim"),
        r.integer("v_head_dim"),
        _index(r),
    )
    if found.rope % 2 or found.rope > found.index.dim:
        raise r.wrong(f"qk_rope_head_dim {found.rope} is odd or more than index_head_dim {found.index.dim}")
    return found


def compressed(r: ConfigReader, layers: int, heads: int, head_dim: int) -> CompressedConfig:
    sparse, heavy = _ratios(r)
    rope = r.document.get("qk_rope_head_dim")
    if rope is None:
        rope = int(head_dim * r.number("partial_rotary_factor", 64 / 512))
    both = r.inside("rope_parameters")
    nested = both.inside("compress") if "compress" in both.document else r.inside("rope_scaling")
    if "compress" not in both.document and not nested.document:
        nested = both
    scaling = dict(nested.document)
    if scaling.get("rope_type", scaling.get("type")) == "yarn":
        scaling["attention_factor"] = 1.0  # V4 does not scale cos and sin
    found = CompressedConfig(
        q_rank=r.integer("q_lora_rank"),
        rope=rope,
        window=r.integer("sliding_window", 128),
        spans=_spans(r, layers),
        sparse=sparse,
        heavy=heavy,
        theta=r.number("compress_rope_theta", nested.number("rope_theta", 160000.0)),
        scaling=RopeScaling.parse(scaling, str(r.path)),
        groups=r.integer("o_groups"),
        out_rank=r.integer("o_lora_rank"),
        streams=r.integer("hc_mult", 4),
        sinkhorn=r.integer("hc_sinkhorn_iters", 20),
        eps=r.number("hc_eps", 1e-6),
        index=_index(r),
    )
    if heads % found.groups:
        raise r.wrong(f"{heads} attention heads are not a multiple of o_groups {found.groups}")
    if not isinstance(rope, int) or rope % 2 or not 0 < rope <= min(head_dim, found.index.dim):
        raise r.wrong(f"qk_rope_head_dim is {rope!r}, not an even part of a head and of index_head_dim")
    return found


def _ratios(r: ConfigReader) -> tuple[int, int]:
    rates = r.inside("compress_rates")
    sparse = rates.integer("compressed_sparse_attention", r.integer("compress_rate_csa", 4))
    return sparse, rates.integer("heavily_compressed_attention", r.integer("compress_rate_hca", 128))


def _spans(r: ConfigReader, layers: int) -> tuple[Span, ...]:
    """From layer_types, or from the number of tokens in an entry that each layer has (0: no entries)."""
    kinds = r.words("layer_types", tuple(_SPANS), layers)
    if kinds is not None:
        return tuple(_SPANS[kind] for kind in kinds)
    ratios = r.document.get("compress_ratios")
    known: dict[int, Span] = {0: "window", 4: "sparse", 128: "heavy"}
    if not isinstance(ratios, list) or len(ratios) < layers or any(n not in known for n in ratios):
        raise r.wrong(f"compress_ratios is {ratios!r}, not a list of 0, 4 and 128 for {layers} layers")
    return tuple(known[n] for n in ratios[:layers])
