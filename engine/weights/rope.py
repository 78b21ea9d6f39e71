"""Rope scaling as config.json describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from engine.core.errors import ModelError
from kernels.ops.rope import inverse_frequencies, llama3_frequencies


@dataclass(frozen=True)
class RopeScaling:
    """`linear` divides every frequency by `factor`; `llama3` only the low ones, blending in between."""

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192

    @classmethod
    def parse(cls, document: dict[str, Any], where: str) -> RopeScaling | None:
        """From `rope_scaling` or `rope_parameters`; None for plain rope, ModelError for an unknown kind."""
        kind = document.get("rope_type", document.get("type", "default"))
        if kind == "default":
            return None
        if kind not in ("linear", "llama3"):
            raise ModelError(
                "unsupported_rope",
                f"{where}: rope scaling {kind} is not supported (supported: default, linear, llama3).",
            )
        names = ["factor"]
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
        return cls(kind, values[0], values[1], values[2], int(values[3]))


def scaled_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> torch.Tensor:
    """Inverse frequencies [head_dim / 2] in float64."""
    plain = inverse_frequencies(head_dim, theta)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    return llama3_frequencies(
        plain,
        scaling.factor,
        scaling.low_freq_factor,
        scaling.high_freq_factor,
        scaling.original_max_position,
    )
