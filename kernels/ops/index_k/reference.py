"""The checksum of a row is a sum over its lanes of a mix of bits and lane, mixed with its logical position.

An integer sum has the same bits in any order. Keyed by position and not by slot, it is the same on every
rank and after a transfer, and a row that another valid row has overwritten shows. The mix is of Chris
Wellons, https://github.com/skeeto/hash-prospector.
"""

from __future__ import annotations

import torch

_MASK = 0xFFFFFFFF


def check(
    cache: torch.Tensor,
    sums: torch.Tensor,
    slots: torch.Tensor,
    places: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    fits = cache.dim() == 2 and cache.is_contiguous() and sums.dim() == 1 and sums.is_contiguous()
    if not fits or slots.dim() != 1 or not slots.shape == places.shape == positions.shape:
        raise ValueError(
            f"cache {list(cache.shape)}, sums {list(sums.shape)}, slots {list(slots.shape)}, "
            f"places {list(places.shape)}, positions {list(positions.shape)}"
        )
    kinds = [t.dtype for t in (cache, sums, slots, places, positions)]
    if kinds != [torch.bfloat16, torch.int32, torch.int64, torch.int64, torch.int32]:
        raise ValueError(f"cache, sums, slots, places, positions are {kinds}")


def check_rows(cache: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor) -> None:
    if rows.shape != (slots.shape[0], cache.shape[1]) or rows.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(
            f"rows {list(rows.shape)} {rows.dtype} for {slots.shape[0]} slots of {cache.shape[1]}"
        )


def write_index_k(
    cache: torch.Tensor,
    sums: torch.Tensor,
    rows: torch.Tensor,
    slots: torch.Tensor,
    places: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """rows [n, dim] into cache [slots, dim] bfloat16 at slots int64 [n], checksums into sums int32 [places]
    at places int64 [n].

    positions int32 [n] are logical. A slot below 0 is not written, nor is its checksum.
    """
    check(cache, sums, slots, places, positions)
    check_rows(cache, rows, slots)
    kept = slots >= 0
    stored = rows[kept].to(torch.bfloat16)
    cache.index_copy_(0, slots[kept], stored)
    sums.index_copy_(0, places[kept], _checksums(stored, positions[kept]))


def verify_index_k(
    cache: torch.Tensor,
    sums: torch.Tensor,
    slots: torch.Tensor,
    places: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """bool [n]: whether the row at each slot is what was stored there for that position; true below 0."""
    check(cache, sums, slots, places, positions)
    found = _checksums(cache[slots.clamp(min=0)], positions)
    return (found == sums[places.clamp(min=0)]) | (slots < 0)


def _checksums(rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    bits = rows.view(torch.int16).long() & 0xFFFF
    lanes = torch.arange(rows.shape[1], device=rows.device) * 0x9E3779B1 + 1
    total = _mix(bits ^ _mix(lanes & _MASK)).sum(1) & _MASK
    total ^= _mix((positions.long() + 0x51ED270B) & _MASK)
    return torch.where(total >= 1 << 31, total - (1 << 32), total).to(torch.int32)


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ (x >> 16)) * 0x7FEB352D & _MASK
    x = (x ^ (x >> 15)) * 0x846CA68B & _MASK
    return x ^ (x >> 16)
