"""As MLA decode; the blocks of the window's list come first, then those of the chosen entries' list.

Slots below 0 may be anywhere: a block, a split and a row may have nothing, and each is defined.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.latent_device import latent_block, load_query, store_split
from kernels.ops.sparse_decode.reference import check
from kernels.ops.split_device import merge_splits, share, split_count
from kernels.ops.splits import HEAD_TILE, MIN_BLOCKS, SplitWorkspace, head_tiles, needed

ATTEND = {90: Config(8, 2)}
MERGE = {90: Config(4, 2)}


def sparse_decode(
    q: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    slots: tuple[torch.Tensor, torch.Tensor],
    values: int,
    scale: float,
    sinks: torch.Tensor | None = None,
    workspace: SplitWorkspace | None = None,
    target_ctas: int | None = None,
) -> torch.Tensor:
    """As the reference; the workspace's plan is for both lists' lengths, with `head_tiles` KV heads."""
    check(q, caches, slots, values, sinks)
    batch, heads, dim = q.shape
    workspace, tiles = needed(workspace), head_tiles(heads)
    split = workspace.plan
    first, second = (s.contiguous() for s in slots)
    workspace.check(batch, heads, tiles, values, first.shape[1] + second.shape[1])
    q = q if q.stride(2) == 1 else q.contiguous()
    out = torch.empty((batch, heads, values), dtype=q.dtype, device=q.device)
    shape = {"TILES": tiles, "GROUP": split.group, "VALUES": values, "SPLITS": split.splits}
    cut = {"VALUES_PAD": triton.next_power_of_2(values), "BLOCK": split.block, "MIN_BLOCKS": MIN_BLOCKS}
    counts = {"window": first.shape[1], "chosen": second.shape[1]}
    launch(
        _attend,
        (batch, tiles, split.splits),
        {"q": q, "window_cache": caches[0], "window_slots": first, "chosen_cache": caches[1]}
        | {"chosen_slots": second, "rows": workspace.rows, "lse": workspace.lse, "scale": scale}
        | {"active": split.active(batch, target_ctas), "q_row": q.stride(0), "q_head": q.stride(1)}
        | counts,
        ("rows", "lse"),
        choose(ATTEND, q.device),
        REST=dim - values,
        REST_PAD=max(16, triton.next_power_of_2(dim - values)),
        TILE=HEAD_TILE,
        **shape,
        **cut,
    )
    launch(
        _merge,
        (batch, heads),
        {"rows": workspace.rows, "lse": workspace.lse, "out": out}
        | {"sinks": out if sinks is None else sinks}
        | counts,
        ("out",),
        choose(MERGE, q.device),
        SINKS=sinks is not None,
        **shape,
        **cut,
    )
    return out


@triton.jit(do_not_specialize=["active", "q_row", "q_head", "window", "chosen"])
def _attend(
    q, window_cache, window_slots, chosen_cache, chosen_slots, rows, lse, scale, active, q_row, q_head,
    window, chosen,
    TILES: tl.constexpr, GROUP: tl.constexpr, VALUES: tl.constexpr, VALUES_PAD: tl.constexpr,
    REST: tl.constexpr, REST_PAD: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
    MIN_BLOCKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    tile, cta = tl.program_id(1), tl.program_id(2)
    ahead = (window + BLOCK - 1) // BLOCK
    blocks = ahead + (chosen + BLOCK - 1) // BLOCK
    n = split_count(blocks, SPLITS, MIN_BLOCKS)
    ctas = tl.minimum(active, n)
    if cta >= ctas:
        return
    first, last = share(cta, ctas, n)
    group = tl.arange(0, TILE)
    real = group < GROUP
    heads = q + batch * q_row + (tile * GROUP + group) * q_head
    query, tail = load_query(heads, real, VALUES, VALUES_PAD, REST, REST_PAD)
    scale = scale * 1.4426950408889634
    for split in range(first, last):
        low, high = share(split, n, blocks)
        top = tl.full((TILE,), float("-inf"), tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        acc = tl.zeros((TILE, VALUES_PAD), tl.float32)
        acc, total, top = _over(
            query, tail, window_cache, window_slots + batch * window, window, low, tl.minimum(high, ahead),
            acc, total, top, scale, VALUES, VALUES_PAD, REST, REST_PAD, BLOCK,
        )  # fmt: skip
        acc, total, top = _over(
            query, tail, chosen_cache, chosen_slots + batch * chosen, chosen, tl.maximum(low - ahead, 0),
            high - ahead, acc, total, top, scale, VALUES, VALUES_PAD, REST, REST_PAD, BLOCK,
        )  # fmt: skip
        part = ((batch * TILES + tile) * SPLITS + split) * GROUP + group
        store_split(rows, lse, part, real, acc, total, top, VALUES, VALUES_PAD)


@triton.jit
def _over(
    query, tail, cache, slots, count, low, high, acc, total, top, scale,
    VALUES: tl.constexpr, VALUES_PAD: tl.constexpr, REST: tl.constexpr, REST_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The state after blocks low..high of one list; none when high is not above low."""
    for block in range(low, high):
        at = block * BLOCK + tl.arange(0, BLOCK)
        slot = tl.load(slots + at, mask=at < count, other=-1)
        acc, total, top = latent_block(
            query, tail, cache + slot * (VALUES + REST), slot >= 0, acc, total, top, scale,
            VALUES, VALUES_PAD, REST, REST_PAD,
        )  # fmt: skip
    return acc, total, top


@triton.jit(do_not_specialize=["window", "chosen"])
def _merge(
    rows, lse, out, sinks, window, chosen,
    TILES: tl.constexpr, GROUP: tl.constexpr, VALUES: tl.constexpr, VALUES_PAD: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, MIN_BLOCKS: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    blocks = (window + BLOCK - 1) // BLOCK + (chosen + BLOCK - 1) // BLOCK
    n = split_count(blocks, SPLITS, MIN_BLOCKS)
    part = (batch * TILES + head // GROUP) * SPLITS * GROUP + head % GROUP
    sink = float("-inf")
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
    merged = merge_splits(rows, lse, part, GROUP, n, sink, VALUES, VALUES_PAD)
    dims = tl.arange(0, VALUES_PAD)
    at = out + (batch * TILES * GROUP + head) * VALUES + dims
    tl.store(at, merged.to(out.dtype.element_ty), mask=dims < VALUES)
