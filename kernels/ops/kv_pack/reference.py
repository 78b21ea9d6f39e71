"""A head of a page is one run of bytes in the pool, so both directions copy whole runs."""

from __future__ import annotations

import torch

from kernels.ops.pages import check_inside, check_pool


def check(pool: torch.Tensor, pages: torch.Tensor, heads: tuple[int, int]) -> None:
    check_pool(pool)
    if pages.dim() != 1 or pages.dtype != torch.int64 or not 0 <= heads[0] < heads[1] <= pool.shape[1]:
        raise ValueError(
            f"pages {list(pages.shape)} {pages.dtype}, heads {heads[0]}..{heads[1]} of {pool.shape[1]}"
        )


def check_packed(
    pool: torch.Tensor, pages: torch.Tensor, heads: tuple[int, int], packed: torch.Tensor
) -> None:
    want = (pages.shape[0], heads[1] - heads[0], *pool.shape[2:])
    if packed.shape != want or packed.dtype != pool.dtype or not packed.is_contiguous():
        raise ValueError(
            f"packed {list(packed.shape)} {packed.dtype}, not contiguous {list(want)} {pool.dtype}"
        )


def kv_pack(pool: torch.Tensor, pages: torch.Tensor, heads: tuple[int, int]) -> torch.Tensor:
    """[n, heads, layers, 2, page_size, head_dim] of pages int64 [n], heads from..to (half open)."""
    check(pool, pages, heads)
    check_inside(pool, pages.tolist())
    return pool[pages, heads[0] : heads[1]]


def kv_unpack(pool: torch.Tensor, pages: torch.Tensor, heads: tuple[int, int], packed: torch.Tensor) -> None:
    """The inverse of `kv_pack`; pages differ from one another."""
    check(pool, pages, heads)
    check_packed(pool, pages, heads, packed)
    check_inside(pool, pages.tolist())
    pool[pages, heads[0] : heads[1]] = packed
