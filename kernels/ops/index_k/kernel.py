"""One program a row: the bits that are hashed are the bits that are stored."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.index_k.reference import check, check_rows

CONFIGS = {90: Config(1, 1)}


def write_index_k(
    cache: torch.Tensor,
    sums: torch.Tensor,
    rows: torch.Tensor,
    slots: torch.Tensor,
    places: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """As the reference. Slots of one call differ, or are below 0."""
    check(cache, sums, slots, places, positions)
    check_rows(cache, rows, slots)
    dim = cache.shape[1]
    where = {"slots": slots, "places": places, "positions": positions}
    launch(
        _write,
        (slots.shape[0],),
        {"cache": cache, "sums": sums, "rows": rows.contiguous(), **where},
        ("cache", "sums"),
        choose(CONFIGS, cache.device),
        DIM=dim,
        PAD=triton.next_power_of_2(dim),
    )


def verify_index_k(
    cache: torch.Tensor,
    sums: torch.Tensor,
    slots: torch.Tensor,
    places: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """As the reference."""
    check(cache, sums, slots, places, positions)
    dim = cache.shape[1]
    where = {"slots": slots, "places": places, "positions": positions}
    good = torch.empty(slots.shape, dtype=torch.int8, device=cache.device)
    launch(
        _verify,
        (slots.shape[0],),
        {"cache": cache, "sums": sums, **where, "good": good},
        ("good",),
        choose(CONFIGS, cache.device),
        DIM=dim,
        PAD=triton.next_power_of_2(dim),
    )
    return good.bool()


@triton.jit
def _mix(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _checksum(row, position, DIM: tl.constexpr, PAD: tl.constexpr):
    lane = tl.arange(0, PAD)
    bits = row.to(tl.uint16, bitcast=True).to(tl.uint32)
    mixed = _mix(bits ^ _mix(lane.to(tl.uint32) * 0x9E3779B1 + 1))
    total = tl.sum(tl.where(lane < DIM, mixed, 0).to(tl.uint32), 0).to(tl.uint32)
    return (total ^ _mix(position.to(tl.uint32) + 0x51ED270B)).to(tl.int32, bitcast=True)


@triton.jit
def _write(cache, sums, rows, slots, places, positions, DIM: tl.constexpr, PAD: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + n)
    if slot < 0:
        return
    lane = tl.arange(0, PAD)
    row = tl.load(rows + n * DIM + lane, mask=lane < DIM, other=0.0).to(tl.bfloat16)
    tl.store(cache + slot * DIM + lane, row, mask=lane < DIM)
    tl.store(sums + tl.load(places + n), _checksum(row, tl.load(positions + n), DIM, PAD))


@triton.jit
def _verify(cache, sums, slots, places, positions, good, DIM: tl.constexpr, PAD: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + n)
    if slot < 0:
        tl.store(good + n, 1)
        return
    lane = tl.arange(0, PAD)
    row = tl.load(cache + slot * DIM + lane, mask=lane < DIM, other=0.0)
    same = _checksum(row, tl.load(positions + n), DIM, PAD) == tl.load(sums + tl.load(places + n))
    tl.store(good + n, same.to(tl.int8))
