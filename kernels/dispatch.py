"""The choice between an operation's two implementations, by where its first tensor is. No triton on a CPU."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import torch

F = TypeVar("F", bound=Callable[..., Any])


def by_device(reference: F) -> F:
    """`reference`; for a CUDA tensor as first argument, the function of its name in `kernel.py` beside it."""
    kernel = f"{reference.__module__.rpartition('.')[0]}.kernel"
    name = reference.__name__

    @functools.wraps(reference)
    def run(first: torch.Tensor, *args: Any, **named: Any) -> Any:
        if first.is_cuda:
            return getattr(importlib.import_module(kernel), name)(first, *args, **named)
        return reference(first, *args, **named)

    return cast(F, run)
