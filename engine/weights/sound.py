"""Whether a tensor that was read can be a weight: damaged bytes show as values that are no finite numbers."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from engine.core.errors import ModelError

_KINDS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def sound(tensor: torch.Tensor, name: str, path: Path) -> torch.Tensor:
    """The tensor itself; ModelError naming it and its file when it is damaged or of a type not served."""
    if tensor.dtype not in _KINDS:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ModelError(
            "weights_unsupported",
            f"{path}: {name} is {kind}, not float32, float16 or bfloat16.",
            "Of quantised weights FP8 and FP4 with their scales are read.",
        )
    # One pass without a copy: both ends are NaN when any value is.
    if tensor.numel() and not all(math.isfinite(end) for end in tensor.aminmax()):
        raise ModelError(
            "weights_damaged",
            f"{path} is damaged: {name} has values that are not finite numbers.",
            "Fetch or convert the model again.",
        )
    return tensor
