"""Mixture of experts as the families' config.json describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.weights.reader import ConfigReader

Scoring = Literal["softmax", "sigmoid", "sqrtsoftplus"]
LayerKind = Literal["dense", "routed", "hashed"]


@dataclass(frozen=True)
class MoeConfig:
    """`layers[i]` is what layer i has: one dense block, experts that a router picks, or experts that a table
    of token ids picks (their weights are the router's still).

    `shared` is the intermediate size of the experts that every token takes, 0 for none. Of `groups` groups
    of experts `groups_kept` are picked from. `normalise`: the weights of a token's experts add up to
    `scale`. `biased`: a correction takes part in the choice, not in the weights. `limit` clips what enters
    an expert's activation.
    """

    layers: tuple[LayerKind, ...]
    experts: int
    per_token: int
    intermediate: int
    shared: int
    scoring: Scoring
    normalise: bool
    scale: float = 1.0
    groups: int = 1
    groups_kept: int = 1
    biased: bool = False
    limit: float | None = None


def _experts(r: ConfigReader) -> tuple[int, int]:
    names = ("n_routed_experts", "num_experts", "num_local_experts")
    name = next((n for n in names if r.document.get(n) is not None), names[0])
    experts, per_token = r.integer(name), r.integer("num_experts_per_tok")
    if per_token > experts:
        raise r.wrong(f"num_experts_per_tok {per_token} is more than {name} {experts}")
    return experts, per_token


def qwen3_moe(r: ConfigReader, layers: int) -> MoeConfig:
    experts, per_token = _experts(r)
    dense = r.document.get("mlp_only_layers") or []
    every = r.integer("decoder_sparse_step", 1)
    return MoeConfig(
        layers=tuple("dense" if i in dense or (i + 1) % every else "routed" for i in range(layers)),
        experts=experts,
        per_token=per_token,
        intermediate=r.integer("moe_intermediate_size"),
        shared=0,
        scoring="softmax",
        normalise=bool(r.document.get("norm_topk_prob", False)),
    )


def deepseek_v3_moe(r: ConfigReader, layers: int) -> MoeConfig:
    experts, per_token = _experts(r)
    groups, kept = r.integer("n_group", 1), r.integer("topk_group", 1)
    if experts % groups or experts // groups < 2 or kept > groups or kept * (experts // groups) < per_token:
        raise r.wrong(f"{kept} of {groups} groups of {experts} experts do not offer {per_token}")
    if r.document.get("scoring_func", "sigmoid") != "sigmoid":
        raise r.wrong(f"scoring_func {r.document['scoring_func']!r} is not supported (supported: sigmoid)")
    kinds = r.words("mlp_layer_types", ("dense", "sparse"), layers)
    if kinds is None:
        first, every = r.count("first_k_dense_replace", 3), r.integer("moe_layer_freq", 1)
        kinds = ["dense" if i < first or i % every else "sparse" for i in range(layers)]
    return MoeConfig(
        layers=tuple("dense" if kind == "dense" else "routed" for kind in kinds),
        experts=experts,
        per_token=per_token,
        intermediate=r.integer("moe_intermediate_size"),
        shared=r.count("n_shared_experts", 1) * r.integer("moe_intermediate_size"),
        scoring="sigmoid",
        normalise=bool(r.document.get("norm_topk_prob", True)),
        scale=r.number("routed_scaling_factor", 1.0),
        groups=groups,
        groups_kept=kept,
        biased=True,
    )


def deepseek_v4_moe(r: ConfigReader, layers: int) -> MoeConfig:
    experts, per_token = _experts(r)
    scoring = r.document.get("scoring_func", "sqrtsoftplus")
    if scoring not in ("softmax", "sigmoid", "sqrtsoftplus"):
        raise r.wrong(
            f"scoring_func {scoring!r} is not supported (supported: softmax, sigmoid, sqrtsoftplus)"
        )
    kinds = r.words("mlp_layer_types", ("hash_moe", "moe"), layers)
    if kinds is None:
        hashed = r.count("num_hash_layers", 3)
        kinds = ["hash_moe" if i < hashed else "moe" for i in range(layers)]
    return MoeConfig(
        layers=tuple("hashed" if kind == "hash_moe" else "routed" for kind in kinds),
        experts=experts,
        per_token=per_token,
        intermediate=r.integer("moe_intermediate_size"),
        shared=r.count("n_shared_experts", 1) * r.integer("moe_intermediate_size"),
        scoring=scoring,
        normalise=True,
        scale=r.number("routed_scaling_factor", 1.5),
        biased=True,
        limit=r.number("swiglu_limit", 10.0),
    )
