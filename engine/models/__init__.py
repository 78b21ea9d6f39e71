"""Model families by the architecture that config.json names."""

from __future__ import annotations

from engine.models.llama import Llama

# Llama's block covers them: biases, head size and q/k norms come from the config.
__all__ = ["Llama"]
