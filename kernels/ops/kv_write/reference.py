"""Rows are planned once a step; writing a layer is one indexed copy."""

from __future__ import annotations

import torch

from kernels.ops.pages import check_pool, slot_ids, slot_table


def kv_rows(pool: torch.Tensor, pages: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Where token t of a step goes: slot `slots[t]` of page `pages[t]`, both int64 [tokens].

    ValueError when a page or slot lies outside the pool.
    """
    check_pool(pool)
    if pages.shape != slots.shape or pages.dim() != 1:
        raise ValueError(f"pages {list(pages.shape)} and slots {list(slots.shape)} must be equal vectors")
    if pages.numel():
        if not 0 <= int(pages.min()) <= int(pages.max()) < pool.shape[0]:
            raise ValueError(f"a page is outside 0..{pool.shape[0] - 1}")
        if not 0 <= int(slots.min()) <= int(slots.max()) < pool.shape[4]:
            raise ValueError(f"a slot is outside 0..{pool.shape[4] - 1}")
    return slot_ids(pool, pages, slots)


def kv_write(pool: torch.Tensor, layer: int, rows: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """k and v [tokens, kv_heads, head_dim] into `layer` at the rows of `kv_rows`, in the same order.

    ValueError for operands that do not fit, and a layer that the pool does not have.
    """
    heads, layers, dim = pool.shape[1], pool.shape[2], pool.shape[5]
    if k.shape != v.shape or k.shape[1:] != (heads, dim) or rows.shape[0] != 2 * k.shape[0] * heads:
        raise ValueError(
            f"k {list(k.shape)}, v {list(v.shape)} do not fit {rows.shape[0]} rows of {heads} heads of {dim}"
        )
    if k.dtype != pool.dtype or v.dtype != pool.dtype:
        raise ValueError(f"k is {k.dtype}, v {v.dtype}, the pool {pool.dtype}")
    if not 0 <= layer < layers:
        raise ValueError(f"layer {layer} is outside 0..{layers - 1}")
    slot_table(pool, layer).index_copy_(0, rows, torch.stack((k, v), 1).view(-1, k.shape[2]))
