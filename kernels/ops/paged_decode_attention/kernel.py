"""Flash decoding over pages in two launches: partial rows of a row's splits, then their merge.

Grid and workspace have `SPLITS` of the plan; `active` CTAs share the splits a row has, and one without any
ends before it touches memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.paged_decode_attention.reference import check_count, check_lists, check_query
from kernels.ops.pages import check_pool
from kernels.ops.split_device import merge_splits, share, split_count
from kernels.ops.splits import MIN_BLOCKS, SplitWorkspace, needed

ATTEND = {90: Config(4, 3), 120: Config(4, 2)}
MERGE = {90: Config(4, 2)}


@dataclass(frozen=True)
class DecodePlan:
    """`table` int32 [batch, pages] of page ids, `lengths` int32 [batch]; a row of length 0 is padding."""

    table: torch.Tensor
    lengths: torch.Tensor
    workspace: SplitWorkspace
    active: int

    @property
    def batch(self) -> int:
        return self.table.shape[0]


def plan_decode(
    pool: torch.Tensor,
    pages: list[list[int]],
    lengths: list[int],
    workspace: SplitWorkspace | None = None,
    target_ctas: int | None = None,
    width: int = 1,
) -> DecodePlan:
    """As the reference, with the stream's workspace; `target_ctas` is the operator's (`SplitPlan.active`)."""
    used = check_lists(pool, pages, lengths)
    workspace = needed(workspace)
    plan = workspace.plan
    workspace.check(len(lengths), plan.heads, pool.shape[1], pool.shape[5], max(lengths))
    table = _table(used, max(width, *map(len, used)))
    return DecodePlan(
        table.to(pool.device),
        torch.tensor(lengths, dtype=torch.int32).to(pool.device),
        workspace,
        plan.active(len(lengths), target_ctas),
    )


def replan_decode(
    pool: torch.Tensor, plan: DecodePlan, pages: list[list[int]], lengths: list[int]
) -> DecodePlan:
    """As the reference. ValueError also for a sequence of more pages than the plan's table is wide."""
    check_count(plan.batch, lengths)
    used, width = check_lists(pool, pages, lengths), plan.table.shape[1]
    if max(map(len, used)) > width:
        raise ValueError(f"{max(map(len, used))} pages of a sequence for a plan of {width}")
    plan.table.copy_(_table(used, width))
    plan.lengths.copy_(torch.tensor(lengths, dtype=torch.int32))
    return plan


def _table(used: list[list[int]], width: int) -> torch.Tensor:
    return torch.tensor([own + [0] * (width - len(own)) for own in used], dtype=torch.int32)


def paged_decode_attention(
    q: torch.Tensor,
    pool: torch.Tensor,
    layer: int,
    plan: DecodePlan,
    scale: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """As the reference. Allocates the result alone."""
    check_pool(pool)
    check_query(q, pool, layer, plan.batch, sinks)
    work, split = plan.workspace, plan.workspace.plan
    batch, heads, dim = q.shape
    kv_heads, layers, page_size = pool.shape[1], pool.shape[2], pool.shape[4]
    work.check(batch, heads, kv_heads, dim, 0)
    q = q if q.stride(2) == 1 else q.contiguous()
    out = torch.empty((batch, heads, dim), dtype=q.dtype, device=q.device)
    shape = {"KV_HEADS": kv_heads, "GROUP": split.group, "DIM": dim, "SPLITS": split.splits}
    cut = {"DIM_PAD": triton.next_power_of_2(dim), "BLOCK": split.block, "MIN_BLOCKS": MIN_BLOCKS}
    launch(
        _attend,
        (batch, kv_heads, split.splits),
        {"q": q, "pool": pool, "table": plan.table, "lengths": plan.lengths}
        | {"rows": work.rows, "lse": work.lse, "active": plan.active, "scale": scale, "layer": layer}
        | {"q_row": q.stride(0), "q_head": q.stride(1), "table_row": plan.table.stride(0), "layers": layers},
        ("rows", "lse"),
        choose(ATTEND, q.device),
        GROUP_PAD=max(16, triton.next_power_of_2(split.group)),
        PAGE=page_size,
        **shape,
        **cut,
    )
    launch(
        _merge,
        (batch, heads),
        {"rows": work.rows, "lse": work.lse, "lengths": plan.lengths, "out": out}
        | {"sinks": out if sinks is None else sinks},
        ("out",),
        choose(MERGE, q.device),
        SINKS=sinks is not None,
        **shape,
        **cut,
    )
    return out


@triton.jit(do_not_specialize=["active", "layer", "layers", "q_row", "q_head", "table_row"])
def _attend(
    q, pool, table, lengths, rows, lse, active, scale, layer, q_row, q_head, table_row, layers,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, DIM: tl.constexpr,
    DIM_PAD: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
    MIN_BLOCKS: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    kv_head, cta = tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + batch)
    blocks = (length + BLOCK - 1) // BLOCK
    n = split_count(blocks, SPLITS, MIN_BLOCKS)
    ctas = tl.minimum(active, n)
    if cta >= ctas:
        return
    first, last = share(cta, ctas, n)
    group, dims = tl.arange(0, GROUP_PAD), tl.arange(0, DIM_PAD)
    real = group < GROUP
    at = q + batch * q_row + (kv_head * GROUP + group)[:, None] * q_head + dims[None, :]
    query = tl.load(at, mask=real[:, None] & (dims < DIM)[None, :], other=0.0)
    run = layers.to(tl.int64) * (2 * PAGE * DIM)  # of a head; a pool's offsets do not fit into 32 bits
    keys_at = pool + kv_head * run + layer * (2 * PAGE * DIM)
    page_run = KV_HEADS * run
    for split in range(first, last):
        low, high = share(split, n, blocks)
        acc, total, top = _one_split(
            query, keys_at, table + batch * table_row, length, low, high, page_run,
            scale * 1.4426950408889634, GROUP_PAD, DIM, DIM_PAD, PAGE, BLOCK,
        )  # fmt: skip
        row = ((batch * KV_HEADS + kv_head) * SPLITS + split) * GROUP + group
        part = rows + row[:, None] * DIM + dims[None, :]
        tl.store(part, acc / total[:, None], mask=real[:, None] & (dims < DIM)[None, :])
        tl.store(lse + row, top + tl.log2(total), mask=real)


@triton.jit
def _one_split(
    query, pool, table, length, low, high, page_run, scale,
    GROUP_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Unnormalised rows, weights and greatest score over blocks low..high, of which none is empty."""
    dims, keys = tl.arange(0, DIM_PAD), tl.arange(0, BLOCK)
    dim_mask = dims < DIM
    top = tl.full((GROUP_PAD,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_PAD,), tl.float32)
    acc = tl.zeros((GROUP_PAD, DIM_PAD), tl.float32)
    for block in range(low, high):
        at = block * BLOCK + keys
        there = at < length
        page = tl.load(table + at // PAGE, mask=there, other=0).to(tl.int64)
        slot = pool + page * page_run + (at % PAGE) * DIM
        k = tl.load(slot[None, :] + dims[:, None], mask=there[None, :] & dim_mask[:, None], other=0.0)
        score = tl.dot(query, k, input_precision="ieee") * scale
        score = tl.where(there[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        fade = tl.exp2(top - higher)
        weight = tl.exp2(score - higher[:, None])
        values = slot[:, None] + PAGE * DIM + dims[None, :]
        v = tl.load(values, mask=there[:, None] & dim_mask[None, :], other=0.0)
        acc = acc * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        total = total * fade + tl.sum(weight, 1)
        top = higher
    return acc, total, top


@triton.jit
def _merge(
    rows, lse, lengths, out, sinks,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, MIN_BLOCKS: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    blocks = (tl.load(lengths + batch) + BLOCK - 1) // BLOCK
    n = split_count(blocks, SPLITS, MIN_BLOCKS)
    row = (batch * KV_HEADS + head // GROUP) * SPLITS * GROUP + head % GROUP
    sink = float("-inf")
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
    merged = merge_splits(rows, lse, row, GROUP, n, sink, DIM, DIM_PAD)
    dims = tl.arange(0, DIM_PAD)
    at = out + (batch * KV_HEADS * GROUP + head) * DIM + dims
    tl.store(at, merged.to(out.dtype.element_ty), mask=dims < DIM)
