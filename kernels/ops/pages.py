"""The paged KV pool as flat tables that whole pages or single slots are addressed in by one index.

A table starts at a layer by narrowing, so ids are computed once a step and serve every layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def check_pool(pool: torch.Tensor) -> None:
    if pool.dim() != 6 or pool.shape[3] != 2 or not pool.is_contiguous():
        raise ValueError(
            "pool must be contiguous [pages, kv_heads, layers, 2, page_size, head_dim], "
            f"not {list(pool.shape)}"
        )


def check_inside(pool: torch.Tensor, pages: Sequence[int]) -> None:
    if pages and not 0 <= min(pages) <= max(pages) < pool.shape[0]:
        raise ValueError(f"a page is outside 0..{pool.shape[0] - 1}")


def block_ids(pool: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    """Ids of layer 0's keys in `block_table`, [..., kv_heads, n] for pages [..., n]; values are at +1."""
    heads, layers = pool.shape[1], pool.shape[2]
    head = torch.arange(heads, device=pages.device)
    return (pages.unsqueeze(-2) * heads + head[:, None]) * (layers * 2)


def block_table(pool: torch.Tensor, layer: int) -> torch.Tensor:
    """[blocks, page_size * head_dim] from the given layer's first block on."""
    return pool.view(-1, pool.shape[4] * pool.shape[5])[2 * layer :]


def slot_ids(pool: torch.Tensor, pages: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Ids in `slot_table` of layer 0 for tokens at (pages[t], slots[t]): int64 [tokens * 2 * kv_heads].

    Order: token, then key before value, then head.
    """
    page_size = pool.shape[4]
    keys = block_ids(pool, pages[:, None]).squeeze(-1) * page_size + slots[:, None]
    return torch.stack((keys, keys + page_size), 1).reshape(-1)


def slot_table(pool: torch.Tensor, layer: int) -> torch.Tensor:
    """[slots, head_dim] from the given layer's first slot on."""
    return pool.view(-1, pool.shape[5])[2 * layer * pool.shape[4] :]
