"""One comparison of a kernel with its reference: for the interpreter, a GPU, and planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Stage:
    """What a case plays on: the kernel's module, a device, and `fresh` for buffers that hold nothing."""

    kernel: ModuleType
    device: torch.device = CPU
    fresh: Callable[..., None] = lambda *_: None

    def put(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return [t.to(self.device) for t in tensors]


@dataclass(frozen=True)
class Case:
    """`play` raises when the kernel is wrong; a `slow` case is not part of the sample."""

    name: str
    play: Callable[[Stage], None]
    slow: bool = False


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(found: torch.Tensor, want: torch.Tensor, ulps: float = 2, floor: float = 2e-5) -> None:
    """AssertionError unless every element is within `ulps` roundings of its dtype, or `floor`.

    NaN and infinity must be in the same places: two wrongs that both overflow do not pass.
    """
    if found.shape != want.shape:
        raise AssertionError(f"{list(found.shape)} instead of {list(want.shape)}")
    step = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-20}[found.dtype]
    a, b = found.double().cpu(), want.double().cpu()
    if not torch.equal(a.isfinite(), b.isfinite()):
        at = (a.isfinite() != b.isfinite()).nonzero()[0].tolist()
        raise AssertionError(f"{a[tuple(at)]} instead of {b[tuple(at)]} at {at}")
    fine = a.isfinite()
    error = (a - b).abs()[fine] - (ulps * step * b.abs()[fine] + max(floor, step * ulps * 0.5))
    if error.numel() and float(error.max()) > 0:
        where = ((a - b).abs().nan_to_num(0)).argmax()
        raise AssertionError(f"{a.flatten()[where]} instead of {b.flatten()[where]}, of {list(a.shape)}")


def same(found: torch.Tensor, want: torch.Tensor) -> None:
    """AssertionError unless every bit is equal."""
    if found.dtype != want.dtype or found.shape != want.shape:
        raise AssertionError(f"{found.dtype} {list(found.shape)} instead of {want.dtype} {list(want.shape)}")
    a, b = (t.cpu().contiguous().view(-1) for t in (found, want))
    bits = [t.view(torch.uint8).view(t.numel(), t.element_size()) for t in (a, b)]
    differs = (bits[0] != bits[1]).any(1).nonzero().flatten()
    if differs.numel():
        raise AssertionError(f"{a[differs[0]]} instead of {b[differs[0]]}, and {differs.numel()} like it")


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, math.nan, dtype=dtype)
