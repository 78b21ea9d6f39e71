"""Weights of 8 and 4 bits, made into float32 as they are read.

A weight `X.weight` of few bits has its scales beside it. FP8 (E4M3): one scale for each block of rows and
columns in `X.weight_scale_inv` or `X.scale`, or in `X.weight_scale` one for all or for each row. Four bits
(E2M1), two values a byte, the first in the lower half: `X.weight_scale` has an E4M3 scale for each 16 values
of a row, and `X.weight_scale_2` one for all (NVFP4); or `X.scale` has a power of two for each 32 (MXFP4). A
scale of type uint8 is the exponent of a power of two (E8M0), for files that know no such type.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

SCALES = ("_scale_inv", "_scale")  # after a weight's name
_FEW_BITS = ("F8_E4M3", "U8", "I8")
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def scale_name(name: str, names: Collection[str]) -> str | None:
    """The tensor with the scales of weight `name`, or None."""
    found = [name + end for end in SCALES if name + end in names]
    if not found and name.endswith(".weight") and f"{name.removesuffix('weight')}scale" in names:
        return f"{name.removesuffix('weight')}scale"
    return found[0] if found else None


def few_bits(kind: str) -> bool:
    """Whether a safetensors dtype is one that is of no use without scales."""
    return kind in _FEW_BITS


def packed(kind: str) -> bool:
    """Whether a byte of that safetensors dtype holds two values."""
    return kind in ("U8", "I8")


def from_fp8(
    weight: torch.Tensor,
    scale: torch.Tensor,
    block: tuple[int, int],
    at: tuple[int, int],
    whole: tuple[int, ...],
) -> torch.Tensor:
    """float32 of a part [rows, columns] of a weight that begins at row and column `at` of the `whole`.

    `scale` is of the whole weight: [blocks of rows, blocks of columns], [rows, 1], [rows] or of one value.
    ValueError when it is none of these.
    """
    scale = _number(scale)
    if scale.numel() == 1:
        return weight.float() * scale.reshape(())
    row = torch.arange(at[0], at[0] + weight.shape[0])
    if scale.shape in ((whole[0],), (whole[0], 1)):
        return weight.float() * scale.reshape(-1)[row][:, None]
    if scale.shape != (-(-whole[0] // block[0]), -(-whole[1] // block[1])):
        raise ValueError(f"scales {list(scale.shape)} of blocks of {block[0]} x {block[1]}")
    columns = torch.arange(at[1], at[1] + weight.shape[1]) // block[1]
    return weight.float() * scale[row // block[0]][:, columns]


def _number(scale: torch.Tensor) -> torch.Tensor:
    """float32 of scales as they are stored."""
    return (scale.view(torch.float8_e8m0fnu) if scale.dtype == torch.uint8 else scale).float()


def from_fp4(weight: torch.Tensor, scale: torch.Tensor, second: torch.Tensor | None) -> torch.Tensor:
    """float32 [rows, 2 * bytes] of whole rows of packed values; `scale` [rows, groups] is theirs.

    ValueError when the groups do not divide a row.
    """
    bits = weight.view(torch.uint8)
    codes = torch.stack((bits & 0xF, bits >> 4), -1).flatten(-2).long()
    values = torch.tensor([*_FP4, *(-v for v in _FP4)])[codes]
    if scale.dim() != 2 or values.shape[1] % scale.shape[1] or scale.shape[0] != values.shape[0]:
        raise ValueError(f"scales {list(scale.shape)} for {list(values.shape)} values")
    found = values.view(*scale.shape, -1) * _number(scale)[..., None]
    if second is not None:
        found = found * second.float().reshape(())
    return found.flatten(1)
