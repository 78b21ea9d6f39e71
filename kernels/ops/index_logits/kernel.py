"""One program a row and a block of entries: the dot products of all heads, then their weighed sum."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.index_logits.reference import check

CONFIGS = {90: Config(4, 2, {"BLOCK": 128}), 120: Config(4, 2, {"BLOCK": 64})}


def index_logits(
    q: torch.Tensor,
    weights: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    width: int,
) -> torch.Tensor:
    """As the reference."""
    check(q, weights, cache, table, lengths, width)
    rows, heads, dim = q.shape
    out = torch.empty((rows, width), dtype=torch.float32, device=q.device)
    config = choose(CONFIGS, q.device)
    launch(
        _score,
        (rows, -(-width // config["BLOCK"])),
        {"q": q.contiguous(), "weights": weights.contiguous(), "cache": cache, "table": table}
        | {"lengths": lengths, "out": out, "width": width, "table_row": table.stride(0)}
        | {"page_run": cache.stride(0)},
        ("out",),
        config,
        HEADS=heads,
        HEADS_PAD=max(16, triton.next_power_of_2(heads)),
        DIM=dim,
        DIM_PAD=max(16, triton.next_power_of_2(dim)),
        PAGE=cache.shape[1],
        BLOCK=config["BLOCK"],
    )
    return out


@triton.jit(do_not_specialize=["width", "table_row"])
def _score(
    q, weights, cache, table, lengths, out, width, table_row, page_run,
    HEADS: tl.constexpr, HEADS_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < tl.minimum(tl.load(lengths + row), width)
    heads, dims = tl.arange(0, HEADS_PAD), tl.arange(0, DIM_PAD)
    real, dim_mask = heads < HEADS, dims < DIM
    page = tl.load(table + row * table_row + at // PAGE, mask=there, other=0).to(tl.int64)
    slot = page * page_run + (at % PAGE) * DIM
    keys = tl.load(cache + slot[None, :] + dims[:, None], mask=there[None, :] & dim_mask[:, None], other=0.0)
    where = (row * HEADS + heads[:, None]) * DIM + dims[None, :]
    query = tl.load(q + where, mask=real[:, None] & dim_mask[None, :], other=0.0)
    weight = tl.load(weights + row * HEADS + heads, mask=real, other=0.0).to(tl.float32)
    score = tl.maximum(tl.dot(query, keys, input_precision="ieee"), 0.0)
    total = tl.where(there, tl.sum(score * weight[:, None], 0), float("-inf"))
    tl.store(out + row * width + at, total, mask=at < width)
