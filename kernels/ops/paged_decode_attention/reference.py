"""Sequences are taken in groups whose gathered pages stay in a core's L2; a group is two batched products.

A length is padded to a whole bucket of keys and masked, and only sequences of one bucket are in a group: a
product over more keys adds in another order, so a sequence's bits would depend on its company. The arithmetic
is float32 for the same reason (batched bfloat16 products are not exact from one batch size to another) and
costs no more. Slots past a sequence's end may hold anything, what is no number too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernels.ops.pages import block_ids, block_table, check_inside, check_pool
from kernels.ops.splits import SplitWorkspace

GROUP_BYTES = 1 << 20
_BUCKET = 64  # keys; whole vectors too, since a sum's tail is added in another order
_LANES = 16  # float32 numbers of the widest CPU vector


@dataclass(frozen=True)
class Group:
    """`rows` of the batch; `ids` gathers their keys then values.

    `hidden` [sequences, 1, 1, keys] is what lies past a sequence's end, `past` the same as gathered slots.
    """

    rows: torch.Tensor
    ids: torch.Tensor
    hidden: torch.Tensor
    past: torch.Tensor


@dataclass(frozen=True)
class DecodePlan:
    """A row of length 0 is in no group."""

    batch: int
    groups: tuple[Group, ...]


def plan_decode(
    pool: torch.Tensor,
    pages: list[list[int]],
    lengths: list[int],
    workspace: SplitWorkspace | None = None,
    target_ctas: int | None = None,
    width: int = 1,
) -> DecodePlan:
    """For sequences of `lengths` tokens (the current one included) in `pages`, each in logical order.

    A length of 0 is a padding row: its result is zero. `workspace`, `target_ctas` and `width`, the pages that
    a row's table has at least, are of the kernel.
    ValueError when a sequence's pages do not cover its length or lie outside the pool.
    """
    used = check_lists(pool, pages, lengths)
    page_bytes = 2 * pool.shape[1] * pool.shape[4] * pool.shape[5] * 4
    rows = [row for row, own in enumerate(used) if own]
    widths = {row: _padded(lengths[row], pool.shape[4]) for row in rows}
    groups = tuple(
        _group(pool, some, [used[row] for row in some], [lengths[row] for row in some], widths[some[0]])
        for some in _grouped(widths, GROUP_BYTES // page_bytes)
    )
    return DecodePlan(len(lengths), groups)


def replan_decode(
    pool: torch.Tensor, plan: DecodePlan, pages: list[list[int]], lengths: list[int]
) -> DecodePlan:
    """The plan of as many other sequences; the kernel's is the one given, with its memory filled again.

    ValueError as `plan_decode`, and for another number of sequences.
    """
    check_count(plan.batch, lengths)
    return plan_decode(pool, pages, lengths)


def check_count(batch: int, lengths: list[int]) -> None:
    if len(lengths) != batch:
        raise ValueError(f"{len(lengths)} sequences for a plan of {batch}")


def check_lists(pool: torch.Tensor, pages: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """The pages that each sequence's length takes; ValueError as `plan_decode`."""
    check_pool(pool)
    if not lengths or len(pages) != len(lengths):
        raise ValueError(f"{len(pages)} page lists for {len(lengths)} sequences")
    page_size = pool.shape[4]
    used = []
    for own, length in zip(pages, lengths, strict=True):
        need = -(-length // page_size)
        if length < 0 or len(own) < need:
            raise ValueError(f"{len(own)} pages of {page_size} do not cover {length} tokens")
        used.append(own[:need])
    check_inside(pool, [page for own in used for page in own])
    return used


def check_query(
    q: torch.Tensor, pool: torch.Tensor, layer: int, batch: int, sinks: torch.Tensor | None
) -> None:
    """ValueError for operands that do not fit."""
    kv_heads, layers, head_dim = pool.shape[1], pool.shape[2], pool.shape[5]
    if q.dim() != 3 or q.shape[0] != batch or q.shape[1] % kv_heads or q.shape[2] != head_dim:
        raise ValueError(f"q {list(q.shape)} does not fit {batch} sequences and pool {list(pool.shape)}")
    if q.dtype != pool.dtype:
        raise ValueError(f"q is {q.dtype}, the pool {pool.dtype}")
    if not 0 <= layer < layers:
        raise ValueError(f"layer {layer} is outside 0..{layers - 1}")
    if sinks is not None and sinks.shape != q.shape[1:2]:
        raise ValueError(f"sinks {list(sinks.shape)} are not one for each of {q.shape[1]} heads")


def _padded(length: int, page_size: int) -> int:
    """Pages that are read of a sequence, a function of its length alone."""
    whole = _LANES // math.gcd(_LANES, page_size)
    keys = -(-length // _BUCKET) * _BUCKET
    return -(-keys // (page_size * whole)) * whole


def _grouped(widths: dict[int, int], budget: int) -> list[list[int]]:
    """Rows of one width each, as many as the budget of pages takes, at least one."""
    groups: list[list[int]] = []
    for row in sorted(widths, key=widths.__getitem__):
        width = widths[row]
        if not groups or widths[groups[-1][0]] != width or (len(groups[-1]) + 1) * width > budget:
            groups.append([])
        groups[-1].append(row)
    return groups


def _group(
    pool: torch.Tensor, rows: list[int], pages: list[list[int]], lengths: list[int], width: int
) -> Group:
    padded = torch.tensor([own + own[-1:] * (width - len(own)) for own in pages], device=pool.device)
    ids = block_ids(pool, padded)
    key = torch.arange(width * pool.shape[4], device=pool.device)
    hidden = key[None, :] >= torch.tensor(lengths, device=pool.device)[:, None]
    past = hidden[:, None].expand(-1, pool.shape[1], -1).reshape(-1).nonzero().squeeze(1)
    both = torch.stack((ids, ids + 1)).reshape(-1)
    return Group(torch.tensor(rows, device=pool.device), both, hidden[:, None, None], past)


def paged_decode_attention(
    q: torch.Tensor,
    pool: torch.Tensor,
    layer: int,
    plan: DecodePlan,
    scale: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """[batch, heads, head_dim] for q of that shape; `heads` is a multiple of the pool's kv_heads.

    Query head h reads KV head h // (heads / kv_heads). The tokens' own keys and values are in the pool.
    `sinks` [heads] are logits that take part in the softmax and have no value.
    """
    check_query(q, pool, layer, plan.batch, sinks)
    kv_heads, head_dim = pool.shape[1], pool.shape[5]
    table = block_table(pool, layer)
    dtype = q.dtype
    if sinks is not None:
        sinks = sinks.float().view(kv_heads, -1, 1)
    q = (q.float() * scale).view(plan.batch, kv_heads, -1, head_dim)
    if plan.batch == 1 and plan.groups:
        return _attend(q, table, plan.groups[0], sinks).view(1, -1, head_dim).to(dtype)
    out = torch.zeros_like(q)
    for group in plan.groups:
        out.index_copy_(0, group.rows, _attend(q.index_select(0, group.rows), table, group, sinks))
    return out.view(plan.batch, -1, head_dim).to(dtype)


def _attend(q: torch.Tensor, table: torch.Tensor, group: Group, sinks: torch.Tensor | None) -> torch.Tensor:
    """float32 [n, kv_heads, group, head_dim] for scaled float32 q of that shape."""
    n, kv_heads, heads, head_dim = q.shape
    kv = table.index_select(0, group.ids).float().view(2, n * kv_heads, -1, head_dim)
    # A weight of 0 takes nothing from what is finite, and is NaN of what is not.
    kv[1].view(-1, head_dim).index_fill_(0, group.past, 0.0)
    scores = torch.bmm(q.view(n * kv_heads, heads, head_dim), kv[0].transpose(1, 2))
    scores = scores.view(n, kv_heads, heads, -1).masked_fill_(group.hidden, -math.inf)
    if sinks is None:
        weights = torch.softmax(scores, -1)
    else:
        weights = torch.softmax(torch.cat((scores, sinks.expand(n, -1, -1, 1)), -1), -1)[..., :-1]
    return torch.bmm(weights.reshape(n * kv_heads, heads, -1), kv[1]).view(n, kv_heads, heads, head_dim)
