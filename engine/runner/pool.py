"""Memory of the KV pool."""

from __future__ import annotations

import math

import psutil
import torch

from engine.core.errors import ModelError


def allocate_pool(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A zero-filled tensor whose memory is already touched; ModelError when there is not enough.

    On CPU the memory that is free now is asked for first: the kernel grants more than it has and ends a
    process later instead.
    """
    size = math.prod(shape) * dtype.itemsize
    free = psutil.virtual_memory().available if device.type == "cpu" else None
    if free is not None and size > free:
        raise _too_large(shape[0], size, f"{free / 2**30:.1f} GiB are free")
    try:
        return torch.empty(shape, dtype=dtype, device=device).zero_()
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        raise _too_large(shape[0], size, str(error).splitlines()[0]) from None


def _too_large(pages: int, size: int, reason: str) -> ModelError:
    return ModelError(
        "pool_memory",
        f"A KV pool of {pages} pages ({size / 2**30:.1f} GiB) cannot be allocated ({reason}).",
        "Lower --pages.",
    )
