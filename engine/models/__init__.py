"""Model families by the architecture that config.json names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.models.deepseek_v4 import DeepseekV4
from engine.models.deepseek_v32 import DeepseekV32
from engine.models.llama import Llama
from engine.weights.config import COMPRESSED, LATENT

# Models that lay out their own pages; every other architecture is one of Llama's, by its config.
DECLARED: dict[str, Callable[..., Any]] = {LATENT: DeepseekV32, COMPRESSED: DeepseekV4}

__all__ = ["DECLARED", "Llama"]
