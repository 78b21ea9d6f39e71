"""Rope scaling as config.json describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from engine.core.errors import ModelError
from kernels.ops.rope import inverse_frequencies, llama3_frequencies, yarn_frequencies, yarn_scale


@dataclass(frozen=True)
class RopeScaling:
    """`linear` divides every frequency by `factor`; `llama3` and `yarn` only low ones, blending in between.

    With `yarn`, cos and sin are scaled by `attention_factor`, and the logits of DeepSeek's latent attention
    by `mscale_all_dim`'s scale twice.
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    mscale_all_dim: float = 0.0

    @classmethod
    def parse(cls, document: dict[str, Any], where: str) -> RopeScaling | None:
        """From `rope_scaling` or `rope_parameters`; None for plain rope, ModelError for an unknown kind."""
        kind = document.get("rope_type", document.get("type", "default"))
        if kind == "default":
            return None
        if kind not in ("linear", "llama3", "yarn"):
            raise ModelError(
                "unsupported_rope",
                f"{where}: rope scaling {kind} is not supported (supported: default, linear, llama3, yarn).",
            )
        names = ["factor"]
        if kind == "yarn":
            names.append("original_max_position_embeddings")
        if kind == "llama3":
            names += ["low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
        wrong = [n for n in names if not isinstance(document.get(n), int | float) or document[n] <= 0]
        if wrong:
            raise ModelError(
                "config_key_missing", f"{where}: rope scaling {kind} needs a number in {', '.join(wrong)}."
            )
        values = [float(document[name]) for name in names]
        if kind == "linear":
            return cls(kind, values[0])
        if kind == "yarn":
            return cls._yarn(document, values[0], int(values[1]))
        return cls(kind, values[0], values[1], values[2], int(values[3]))

    @classmethod
    def _yarn(cls, document: dict[str, Any], factor: float, original: int) -> RopeScaling:
        scale, all_dim = document.get("mscale"), float(document.get("mscale_all_dim") or 0.0)
        attention = document.get("attention_factor")
        if attention is None:
            attention = yarn_scale(factor, float(scale) if scale and all_dim else 1.0)
            attention /= yarn_scale(factor, all_dim) if scale and all_dim else 1.0
        return cls(
            "yarn",
            factor,
            original_max_position=original,
            beta_fast=float(document.get("beta_fast") or 32.0),
            beta_slow=float(document.get("beta_slow") or 1.0),
            attention_factor=float(attention),
            mscale_all_dim=all_dim,
        )

    @property
    def logit_factor(self) -> float:
        """What DeepSeek's latent attention multiplies its logits by besides the usual scale."""
        return yarn_scale(self.factor, self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0


def scaled_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> torch.Tensor:
    """Inverse frequencies [head_dim / 2] in float64."""
    plain = inverse_frequencies(head_dim, theta)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "yarn":
        return yarn_frequencies(
            plain,
            theta,
            scaling.factor,
            scaling.beta_fast,
            scaling.beta_slow,
            scaling.original_max_position,
        )
    return llama3_frequencies(
        plain,
        scaling.factor,
        scaling.low_freq_factor,
        scaling.high_freq_factor,
        scaling.original_max_position,
    )
