"""One block of rows whose leading part is both key and value: what MLA and sparse decode share."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_query(
    at, real,
    VALUES: tl.constexpr, VALUES_PAD: tl.constexpr, REST: tl.constexpr, REST_PAD: tl.constexpr,
):  # fmt: skip
    """[heads, values] and [heads, rest] from the heads' addresses [heads]."""
    dims, rest = tl.arange(0, VALUES_PAD), tl.arange(0, REST_PAD)
    query = tl.load(at[:, None] + dims[None, :], mask=real[:, None] & (dims < VALUES)[None, :], other=0.0)
    tail = tl.load(
        at[:, None] + VALUES + rest[None, :], mask=real[:, None] & (rest < REST)[None, :], other=0.0
    )
    return query, tail


@triton.jit
def latent_block(
    query, tail, rows, there, acc, total, top, scale,
    VALUES: tl.constexpr, VALUES_PAD: tl.constexpr, REST: tl.constexpr, REST_PAD: tl.constexpr,
):  # fmt: skip
    """The state with the rows at addresses `rows` taken in; those not `there` are not read, maybe all."""
    dims = tl.arange(0, VALUES_PAD)
    row = tl.load(rows[:, None] + dims[None, :], mask=there[:, None] & (dims < VALUES)[None, :], other=0.0)
    score = tl.dot(query, tl.trans(row), input_precision="ieee")
    if REST > 0:
        rest = tl.arange(0, REST_PAD)
        more = tl.load(
            rows[:, None] + VALUES + rest[None, :], mask=there[:, None] & (rest < REST)[None, :], other=0.0
        )
        score += tl.dot(tail, tl.trans(more), input_precision="ieee")
    score = tl.where(there[None, :], score * scale, float("-inf"))
    higher = tl.maximum(top, tl.max(score, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)
    fade = tl.exp2(top - base)
    weight = tl.exp2(score - base[:, None])
    acc = acc * fade[:, None] + tl.dot(weight.to(row.dtype), row, input_precision="ieee")
    return acc, total * fade + tl.sum(weight, 1), higher


@triton.jit
def store_split(rows, lse, at, real, acc, total, top, VALUES: tl.constexpr, VALUES_PAD: tl.constexpr):
    """A split's partial rows at [heads]; one without any row is zero, its log-sum-exp minus infinity."""
    dims = tl.arange(0, VALUES_PAD)
    some = total > 0
    value = acc / tl.where(some, total, 1.0)[:, None]
    tl.store(
        rows + at[:, None] * VALUES + dims[None, :], value, mask=real[:, None] & (dims < VALUES)[None, :]
    )
    tl.store(lse + at, tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf")), mask=real)
