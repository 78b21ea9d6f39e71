"""On CPU oneDNN's prepacked layout where torch has it, which decode reads faster; else F.linear."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F

# oneDNN picks the layout for this many rows; from 4 on it is the same one and good for every count.
_PACK_ROWS = 8


@dataclass(frozen=True)
class PackedLinear:
    """`weight` is opaque when `packed`. `rows`: see `invariant_rows`."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    packed: bool
    features: tuple[int, int]
    rows: int


def pack(weight: torch.Tensor, bias: torch.Tensor | None = None) -> PackedLinear:
    """weight [out, in], bias [out] or None, same dtype and device; ValueError when they do not fit."""
    if weight.dim() != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError(f"weight {list(weight.shape)} and bias {None if bias is None else list(bias.shape)}")
    out, inner = weight.shape
    packed = weight.device.type == "cpu" and _onednn(weight.dtype)
    if packed:
        weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACK_ROWS)
    rows = invariant_rows(out, inner, weight.dtype, packed) if weight.device.type == "cpu" else 1
    return PackedLinear(weight, bias, packed, (out, inner), rows)


def linear(x: torch.Tensor, w: PackedLinear) -> torch.Tensor:
    """[rows, out] for x [rows, in] of the weight's dtype."""
    if x.dim() != 2 or x.shape[1] != w.features[1] or x.dtype != w.weight.dtype:
        raise ValueError(
            f"x {list(x.shape)} {x.dtype} does not fit a weight of {w.features} {w.weight.dtype}"
        )
    if w.packed:
        return torch.ops.mkldnn._linear_pointwise(x, w.weight, w.bias, "none", [], "")
    return F.linear(x, w.weight, w.bias)


@lru_cache
def invariant_rows(out: int, inner: int, dtype: torch.dtype, packed: bool) -> int:
    """The least number of rows from which a row's bits do not depend on how many rows are with it.

    GEMM libraries use other kernels for one or few rows, so a token computed alone and in a batch would
    differ in the last bits and greedy outputs could part. Found by trying, on sums that cancel to rounding
    noise: there another order of adding shows in every dtype. 4 when nothing up to 8 is exact.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(inner, generator=generator)
    w = torch.randn(min(out, 4096), (inner + 1) // 2, generator=generator).to(dtype)
    half = torch.randn(32, w.shape[1], generator=generator).to(dtype)
    weight = torch.cat((w, -w), 1)[:, :inner][:, order].contiguous()
    x = torch.cat((half, half), 1)[:, :inner][:, order].contiguous()
    if packed:
        weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)
    probe = PackedLinear(weight, None, packed, (weight.shape[0], inner), 1)
    whole = linear(x, probe)
    exact = {n: torch.equal(linear(x[:n], probe), whole[:n]) for n in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)}
    return next((r for r in (1, 2, 4, 8) if all(same for n, same in exact.items() if n >= r)), 4)


@lru_cache
def _onednn(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
