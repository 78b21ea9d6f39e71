"""One program a page, a head and a piece of its run, copied as 32-bit words where it is whole ones."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.kv_pack.reference import check, check_packed

CONFIGS = {90: Config(4, 1, {"WORDS": 4096})}


def kv_pack(pool: torch.Tensor, pages: torch.Tensor, heads: tuple[int, int]) -> torch.Tensor:
    """As the reference."""
    check(pool, pages, heads)
    shape = (pages.shape[0], heads[1] - heads[0], *pool.shape[2:])
    packed = torch.empty(shape, dtype=pool.dtype, device=pool.device)
    _move(pool, pages, heads, packed, True)
    return packed


def kv_unpack(pool: torch.Tensor, pages: torch.Tensor, heads: tuple[int, int], packed: torch.Tensor) -> None:
    """As the reference."""
    check(pool, pages, heads)
    check_packed(pool, pages, heads, packed)
    _move(pool, pages, heads, packed, False)


def _move(
    pool: torch.Tensor, pages: torch.Tensor, heads: tuple[int, int], packed: torch.Tensor, packing: bool
) -> None:
    size = pool.element_size()
    word = torch.int32 if pool.shape[5] * size % 4 == 0 else {1: torch.int8, 2: torch.int16}[size]
    run = math.prod(pool.shape[2:]) * size // word.itemsize
    config = choose(CONFIGS, pool.device)
    launch(
        _copy,
        (pages.shape[0], heads[1] - heads[0], -(-run // config["WORDS"])),
        {"pool": pool.view(word), "packed": packed.view(word), "pages": pages, "run": run}
        | {"first": heads[0], "all_heads": pool.shape[1], "heads": heads[1] - heads[0]},
        ("packed",) if packing else ("pool",),
        config,
        WORDS=config["WORDS"],
        PACKING=packing,
    )


@triton.jit(do_not_specialize=["first", "all_heads", "heads"])
def _copy(pool, packed, pages, run, first, all_heads, heads, WORDS: tl.constexpr, PACKING: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    at = tl.program_id(2) * WORDS + tl.arange(0, WORDS)
    far = pool + (tl.load(pages + n) * all_heads + first + head) * run + at
    near = packed + (n * heads + head) * run + at
    if PACKING:
        tl.store(near, tl.load(far, mask=at < run), mask=at < run)
    else:
        tl.store(far, tl.load(near, mask=at < run), mask=at < run)
