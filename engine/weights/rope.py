"""Rotary frequencies of a model, with the scalings that need no per-request state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from engine.core.errors import ModelError


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
        """From config.json's `rope_scaling` or `rope_parameters`; ModelError for a kind not supported."""
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
        missing = [name for name in names if name not in document]
        if missing:
            raise ModelError("config_key_missing", f"{where}: rope scaling {kind} lacks {', '.join(missing)}.")
        values = [float(document[name]) for name in names]
        if kind == "linear":
            return cls(kind, values[0])
        return cls(kind, values[0], values[1], values[2], int(values[3]))


def scaled_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> torch.Tensor:
    """Inverse frequencies [head_dim / 2] in float64.

    llama3: https://github.com/meta-llama/llama-models, `apply_scaling`: wavelengths past
    original/low are divided by `factor`, those under original/high are kept, those between are blended.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = 1.0 / theta**exponents
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    turns = scaling.original_max_position * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (keep + (1.0 - keep) / scaling.factor)
