"""Flash attention over pages: one program a block of queries and a head, key blocks in their order.

A key block that a row may not see leaves its state as it is, bit by bit, and blocks begin at multiples of the
block size of the position: a row's bits do not depend on how the prompt was cut into chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.paged_prefill_attention.reference import check_pages, check_query

CONFIGS = {
    90: Config(8, 2, {"QUERIES": 128, "KEYS": 64}),
    120: Config(8, 2, {"QUERIES": 64, "KEYS": 64}),
}


@dataclass(frozen=True)
class PrefillPlan:
    """`table` int32 [pages] of one sequence whose queries are at start..start + tokens."""

    table: torch.Tensor
    start: int
    tokens: int


def plan_prefill(
    pool: torch.Tensor, pages: list[int], start: int, tokens: int, dtype: torch.dtype
) -> PrefillPlan:
    """As the reference."""
    used = check_pages(pool, pages, start, tokens)
    return PrefillPlan(torch.tensor(used, dtype=torch.int32).to(pool.device), start, tokens)


def paged_prefill_attention(
    q: torch.Tensor, pool: torch.Tensor, layer: int, plan: PrefillPlan, scale: float
) -> torch.Tensor:
    """As the reference."""
    check_query(q, pool, layer, plan.tokens)
    tokens, heads, dim = q.shape
    q = q if q.stride(2) == 1 else q.contiguous()
    out = torch.empty((tokens, heads, dim), dtype=q.dtype, device=q.device)
    config = choose(CONFIGS, q.device)
    queries = config["QUERIES"]
    blocks = (plan.start + tokens - 1) // queries - plan.start // queries + 1
    launch(
        _attend,
        (blocks, heads),
        {"q": q, "pool": pool, "table": plan.table, "out": out, "start": plan.start, "tokens": tokens}
        | {"scale": scale, "layer": layer, "layers": pool.shape[2], "heads": heads}
        | {"q_row": q.stride(0), "q_head": q.stride(1)},
        ("out",),
        config,
        KV_HEADS=pool.shape[1],
        GROUP=heads // pool.shape[1],
        DIM=dim,
        DIM_PAD=max(16, triton.next_power_of_2(dim)),
        PAGE=pool.shape[4],
        QUERIES=queries,
        KEYS=config["KEYS"],
    )
    return out


@triton.jit(do_not_specialize=["start", "tokens", "layer", "layers", "heads", "q_row", "q_head"])
def _attend(
    q, pool, table, out, start, tokens, scale, layer, layers, heads, q_row, q_head,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    PAGE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    first = (start // QUERIES + tl.program_id(0)) * QUERIES
    position = first + tl.arange(0, QUERIES)
    real = (position >= start) & (position < start + tokens)
    dims = tl.arange(0, DIM_PAD)
    dim_mask = dims < DIM
    row = (position - start).to(tl.int64)
    query = tl.load(
        q + row[:, None] * q_row + head * q_head + dims[None, :],
        mask=real[:, None] & dim_mask[None, :],
        other=0.0,
    )
    run = layers.to(tl.int64) * (2 * PAGE * DIM)
    keys_at = pool + (head // GROUP) * run + layer * (2 * PAGE * DIM)
    end = tl.minimum(first + QUERIES, start + tokens)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((QUERIES, DIM_PAD), tl.float32)
    for block in range(0, end, KEYS):
        at = block + tl.arange(0, KEYS)
        there = at < end
        page = tl.load(table + at // PAGE, mask=there, other=0).to(tl.int64)
        slot = keys_at + page * (KV_HEADS * run) + (at % PAGE) * DIM
        k = tl.load(slot[None, :] + dims[:, None], mask=there[None, :] & dim_mask[:, None], other=0.0)
        score = tl.dot(query, k, input_precision="ieee") * (scale * 1.4426950408889634)
        score = tl.where(at[None, :] <= position[:, None], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        fade = tl.exp2(top - higher)
        weight = tl.exp2(score - higher[:, None])
        values = slot[:, None] + PAGE * DIM + dims[None, :]
        v = tl.load(values, mask=there[:, None] & dim_mask[None, :], other=0.0)
        acc = acc * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        total = total * fade + tl.sum(weight, 1)
        top = higher
    at_out = out + (row[:, None] * heads + head) * DIM + dims[None, :]
    tl.store(at_out, (acc / total[:, None]).to(out.dtype.element_ty), mask=real[:, None] & dim_mask[None, :])
