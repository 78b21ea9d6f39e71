"""As paged decode attention, with 16 query heads a CTA that share every row they read."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.latent_device import latent_block, load_query, store_split
from kernels.ops.mla_decode.reference import check
from kernels.ops.split_device import merge_splits, share, split_count
from kernels.ops.splits import HEAD_TILE, MIN_BLOCKS, SplitWorkspace, head_tiles, needed

ATTEND = {90: Config(8, 2)}
MERGE = {90: Config(4, 2)}


def mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    values: int,
    scale: float,
    workspace: SplitWorkspace | None = None,
    target_ctas: int | None = None,
) -> torch.Tensor:
    """As the reference; the workspace is of a plan with `head_tiles` KV heads."""
    check(q, cache, table, lengths, values)
    batch, heads, dim = q.shape
    workspace, tiles = needed(workspace), head_tiles(heads)
    split = workspace.plan
    workspace.check(batch, heads, tiles, values, 0)
    q = q if q.stride(2) == 1 else q.contiguous()
    out = torch.empty((batch, heads, values), dtype=q.dtype, device=q.device)
    shape = {"TILES": tiles, "GROUP": split.group, "VALUES": values, "SPLITS": split.splits}
    cut = {"VALUES_PAD": triton.next_power_of_2(values), "BLOCK": split.block, "MIN_BLOCKS": MIN_BLOCKS}
    rest = dim - values
    launch(
        _attend,
        (batch, tiles, split.splits),
        {"q": q, "cache": cache, "table": table, "lengths": lengths, "rows": workspace.rows}
        | {"lse": workspace.lse, "active": split.active(batch, target_ctas), "scale": scale}
        | {"q_row": q.stride(0), "q_head": q.stride(1), "table_row": table.stride(0)}
        | {"page_run": cache.stride(0)},
        ("rows", "lse"),
        choose(ATTEND, q.device),
        REST=rest,
        REST_PAD=max(16, triton.next_power_of_2(rest)),
        PAGE=cache.shape[1],
        TILE=HEAD_TILE,
        **shape,
        **cut,
    )
    launch(
        _merge,
        (batch, heads),
        {"rows": workspace.rows, "lse": workspace.lse, "lengths": lengths, "out": out},
        ("out",),
        choose(MERGE, q.device),
        **shape,
        **cut,
    )
    return out


@triton.jit(do_not_specialize=["active", "q_row", "q_head", "table_row"])
def _attend(
    q, cache, table, lengths, rows, lse, active, scale, q_row, q_head, table_row, page_run,
    TILES: tl.constexpr, GROUP: tl.constexpr, VALUES: tl.constexpr, VALUES_PAD: tl.constexpr,
    REST: tl.constexpr, REST_PAD: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    SPLITS: tl.constexpr, MIN_BLOCKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    tile, cta = tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + batch)
    blocks = (length + BLOCK - 1) // BLOCK
    n = split_count(blocks, SPLITS, MIN_BLOCKS)
    ctas = tl.minimum(active, n)
    if cta >= ctas:
        return
    first, last = share(cta, ctas, n)
    group, keys = tl.arange(0, TILE), tl.arange(0, BLOCK)
    real = group < GROUP
    heads = q + batch * q_row + (tile * GROUP + group) * q_head
    query, tail = load_query(heads, real, VALUES, VALUES_PAD, REST, REST_PAD)
    for split in range(first, last):
        low, high = share(split, n, blocks)
        top = tl.full((TILE,), float("-inf"), tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        acc = tl.zeros((TILE, VALUES_PAD), tl.float32)
        for block in range(low, high):
            at = block * BLOCK + keys
            there = at < length
            page = tl.load(table + batch * table_row + at // PAGE, mask=there, other=0).to(tl.int64)
            row = cache + page * page_run + (at % PAGE) * (VALUES + REST)
            acc, total, top = latent_block(
                query, tail, row, there, acc, total, top, scale * 1.4426950408889634,
                VALUES, VALUES_PAD, REST, REST_PAD,
            )  # fmt: skip
        part = ((batch * TILES + tile) * SPLITS + split) * GROUP + group
        store_split(rows, lse, part, real, acc, total, top, VALUES, VALUES_PAD)


@triton.jit
def _merge(
    rows, lse, lengths, out,
    TILES: tl.constexpr, GROUP: tl.constexpr, VALUES: tl.constexpr, VALUES_PAD: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, MIN_BLOCKS: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    blocks = (tl.load(lengths + batch) + BLOCK - 1) // BLOCK
    n = split_count(blocks, SPLITS, MIN_BLOCKS)
    part = (batch * TILES + head // GROUP) * SPLITS * GROUP + head % GROUP
    merged = merge_splits(rows, lse, part, GROUP, n, float("-inf"), VALUES, VALUES_PAD)
    dims = tl.arange(0, VALUES_PAD)
    at = out + (batch * TILES * GROUP + head) * VALUES + dims
    tl.store(at, merged.to(out.dtype.element_ty), mask=dims < VALUES)
