"""Pages are gathered whole, then SDPA over blocks of queries, each only over the keys it may see.

Blocks and their keys begin and end at fixed positions and are padded to them: a product of fewer rows, or a
sum of fewer numbers, is not the same to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernels.ops.pages import block_ids, block_table, check_inside, check_pool

# Queries in a block: small enough to skip most of the masked half, large enough for full GEMMs.
BLOCK = 128
_TILE = 32  # queries that SDPA takes at a time on a CPU


@dataclass(frozen=True)
class Block:
    """Query rows first..last of a chunk, with `before` and `after` rows of padding; mask [rows, keys]."""

    first: int
    last: int
    before: int
    after: int
    mask: torch.Tensor


@dataclass(frozen=True)
class PrefillPlan:
    """`ids` gathers keys then values of one sequence, of which `end` are there."""

    ids: torch.Tensor
    tokens: int
    end: int
    blocks: tuple[Block, ...]


def plan_prefill(
    pool: torch.Tensor, pages: list[int], start: int, tokens: int, dtype: torch.dtype
) -> PrefillPlan:
    """For queries at positions start..start+tokens of the sequence whose pages, in order, are `pages`.

    Blocks are cut at multiples of BLOCK of the position, so that a row's arithmetic does not depend on how
    a prompt was cut into chunks. ValueError when the pages do not cover the last position.
    """
    used, end = check_pages(pool, pages, start, tokens), start + tokens
    width = -(-_up(end, BLOCK) // pool.shape[4])
    ids = block_ids(pool, torch.tensor(used + used[-1:] * (width - len(used)), device=pool.device))
    key = torch.arange(_up(end, BLOCK), device=pool.device)
    blocks = []
    first = start
    while first < end:
        seen = (first // BLOCK + 1) * BLOCK
        last = min(end, seen)
        low, high = first // _TILE * _TILE, _up(last, _TILE)
        hidden = key[None, :seen] > torch.arange(low, high, device=pool.device)[:, None]
        mask = torch.zeros(hidden.shape, dtype=dtype, device=pool.device).masked_fill_(hidden, -math.inf)
        blocks.append(Block(first - start, last - start, first - low, high - last, mask))
        first = last
    return PrefillPlan(torch.stack((ids, ids + 1)).reshape(-1), tokens, end, tuple(blocks))


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def check_pages(pool: torch.Tensor, pages: list[int], start: int, tokens: int) -> list[int]:
    """The pages up to the last position; ValueError as `plan_prefill`."""
    check_pool(pool)
    end, page_size = start + tokens, pool.shape[4]
    used = pages[: math.ceil(end / page_size)]
    if tokens < 1 or start < 0 or len(used) * page_size < end:
        raise ValueError(f"{len(pages)} pages of {page_size} do not cover positions {start}..{end - 1}")
    check_inside(pool, used)
    return used


def check_query(q: torch.Tensor, pool: torch.Tensor, layer: int, tokens: int) -> None:
    """ValueError for operands that do not fit."""
    kv_heads, layers, head_dim = pool.shape[1], pool.shape[2], pool.shape[5]
    if q.dim() != 3 or q.shape[0] != tokens or q.shape[1] % kv_heads or q.shape[2] != head_dim:
        raise ValueError(f"q {list(q.shape)} does not fit {tokens} tokens and pool {list(pool.shape)}")
    if q.dtype != pool.dtype:
        raise ValueError(f"q is {q.dtype}, the pool {pool.dtype}")
    if not 0 <= layer < layers:
        raise ValueError(f"layer {layer} is outside 0..{layers - 1}")


def paged_prefill_attention(
    q: torch.Tensor, pool: torch.Tensor, layer: int, plan: PrefillPlan, scale: float
) -> torch.Tensor:
    """[tokens, heads, head_dim] for q of that shape; `heads` is a multiple of the pool's kv_heads.

    Query head h reads KV head h // (heads / kv_heads). The tokens' own keys and values are in the pool.
    """
    check_query(q, pool, layer, plan.tokens)
    kv_heads, head_dim = pool.shape[1], pool.shape[5]
    group = q.shape[1] // kv_heads
    kv = block_table(pool, layer).index_select(0, plan.ids).view(2, kv_heads, 1, -1, head_dim)
    kv[:, :, :, plan.end :] = 0  # a weight of 0 takes nothing from what is finite
    keys, values = kv.expand(2, kv_heads, group, kv.shape[3], head_dim)
    queries = q.view(q.shape[0], kv_heads, group, head_dim).permute(1, 2, 0, 3)
    out = torch.empty_like(q)
    for block in plan.blocks:
        rows, seen = slice(block.first, block.last), block.mask.shape[1]
        asked = F.pad(queries[:, :, rows], (0, 0, block.before, block.after))
        part = F.scaled_dot_product_attention(
            asked, keys[:, :, :seen], values[:, :, :seen], attn_mask=block.mask, scale=scale
        )
        part = part[:, :, block.before : block.before + block.last - block.first]
        out[rows] = part.permute(2, 0, 1, 3).reshape(block.last - block.first, *q.shape[1:])
    return out
