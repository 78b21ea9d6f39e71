"""Paged attention against plain float64 attention."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.paged_decode_attention import paged_decode_attention, plan_decode
from kernels.ops.paged_decode_attention import reference as decode_reference
from kernels.ops.paged_prefill_attention import paged_prefill_attention, plan_prefill
from kernels.ops.paged_prefill_attention import reference as prefill_reference
from tests.kernels.paged import attention64, scattered

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 4e-2}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
HEADS = pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (6, 2), (4, 1)])


def queries(rows: int, heads: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, heads, 8, generator=torch.Generator().manual_seed(7)).to(dtype)


@DTYPES
@HEADS
def test_decode(dtype: torch.dtype, heads: int, kv_heads: int) -> None:
    lengths = [1, 4, 5, 17, 3, 8]
    pool, pages, kv = scattered(lengths, kv_heads, 8, dtype)
    q = queries(len(lengths), heads, dtype)
    out = paged_decode_attention(q, pool, 1, plan_decode(pool, pages, lengths), 0.3)
    assert out.shape == q.shape and out.dtype == dtype
    for i, length in enumerate(lengths):
        want = attention64(q[i : i + 1], kv[i], length - 1, 0.3)
        # The arithmetic is float32 whatever the pool is: only the result is rounded.
        rounding = 2**-8 if dtype == torch.bfloat16 else 0.0
        assert torch.allclose(out[i : i + 1].double(), want, rtol=rounding, atol=1e-5)


@DTYPES
def test_a_row_without_tokens_is_zero_and_changes_no_other(dtype: torch.dtype) -> None:
    lengths = [0, 9, 0, 3]
    pool, pages, _ = scattered(lengths, 2, 8, dtype)
    q = queries(4, 4, dtype)
    out = paged_decode_attention(q, pool, 1, plan_decode(pool, pages, lengths), 0.3)
    assert not out[0].any() and not out[2].any()
    rows = [1, 3]
    plan = plan_decode(pool, [pages[r] for r in rows], [lengths[r] for r in rows])
    assert torch.equal(out[rows], paged_decode_attention(q[rows], pool, 1, plan, 0.3))
    alone = paged_decode_attention(q[:1], pool, 1, plan_decode(pool, pages[:1], [0]), 0.3)
    assert alone.shape == (1, 4, 8) and not alone.any()


@HEADS
def test_a_sink_takes_part_and_has_no_value(heads: int, kv_heads: int) -> None:
    lengths = [7, 0, 12]
    pool, pages, kv = scattered(lengths, kv_heads, 8, torch.float32)
    q, sinks = (
        queries(3, heads, torch.float32),
        torch.randn(heads, generator=torch.Generator().manual_seed(1)),
    )
    plan = plan_decode(pool, pages, lengths)
    out = paged_decode_attention(q, pool, 1, plan, 0.3, sinks)
    assert not out[1].any()
    for row in (0, 2):
        for h in range(heads):
            k, v = kv[row][:, h // (heads // kv_heads)].double()
            logits = torch.cat((k @ q[row, h].double() * 0.3, sinks[h : h + 1].double()))
            want = torch.softmax(logits, 0)[:-1] @ v
            assert torch.allclose(out[row, h].double(), want, atol=2e-6)


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(3, 1, 64), (4, 1, 64), (8, 1, 40), (14, 2, 128)])
def test_a_row_has_the_same_bits_alone_and_in_any_company(heads: int, kv_heads: int, dim: int) -> None:
    """A product over more keys adds in another order, from some length on and for some numbers of heads."""
    lengths = [1, 17, 63, 64, 65, 130, 200, 257, 300, 600, 190, 130]
    pool, pages, _ = scattered(lengths, kv_heads, dim, torch.float32)
    q = torch.randn(len(lengths), heads, dim, generator=torch.Generator().manual_seed(7))
    together = paged_decode_attention(q, pool, 1, plan_decode(pool, pages, lengths), dim**-0.5)
    for a in range(len(lengths)):
        for rows in ([a], [a, (a + 3) % len(lengths)]):
            plan = plan_decode(pool, [pages[r] for r in rows], [lengths[r] for r in rows])
            assert torch.equal(paged_decode_attention(q[rows], pool, 1, plan, dim**-0.5), together[rows])


@pytest.mark.parametrize("left", [float("nan"), float("inf")])
def test_what_another_sequence_left_behind_the_end_does_not_count(left: float) -> None:
    lengths = [5, 1, 9, 66]
    pool, pages, _ = scattered(lengths, 2, 8, torch.float32)
    q = queries(len(lengths), 4, torch.float32)
    want = paged_decode_attention(q, pool, 1, plan_decode(pool, pages, lengths), 0.3)
    pool[pool == 1e4] = left
    assert torch.equal(paged_decode_attention(q, pool, 1, plan_decode(pool, pages, lengths), 0.3), want)
    rows = torch.cat([q] * 3)[:9]
    assert (
        paged_prefill_attention(rows, pool, 1, plan_prefill(pool, pages[2], 0, 9, q.dtype), 0.3)
        .isfinite()
        .all()
    )


def test_decode_does_not_depend_on_grouping(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [9, 30, 2, 16, 31, 5]
    pool, pages, _ = scattered(lengths, 2, 8, torch.float32)
    q = queries(len(lengths), 6, torch.float32)
    together = paged_decode_attention(q, pool, 1, plan_decode(pool, pages, lengths), 0.3)
    monkeypatch.setattr(decode_reference, "GROUP_BYTES", 1)
    plan = plan_decode(pool, pages, lengths)
    assert len(plan.groups) == len(lengths)
    assert torch.equal(paged_decode_attention(q, pool, 1, plan, 0.3), together)


@pytest.mark.parametrize("budget", [1, 2, 5, 100])
def test_groups_cover_every_row_once_within_the_budget(budget: int) -> None:
    widths = dict(enumerate([3, 1, 4, 1, 4, 9, 1, 4]))
    groups = decode_reference._grouped(widths, budget)
    assert sorted(r for g in groups for r in g) == list(widths)
    assert all(len({widths[r] for r in g}) == 1 for g in groups)
    assert all(len(g) == 1 or len(g) * widths[g[0]] <= budget for g in groups)
    assert budget < 100 or len(groups) == 4


@DTYPES
@HEADS
@pytest.mark.parametrize(("start", "tokens"), [(0, 1), (0, 13), (5, 9), (12, 4), (13, 1)])
def test_prefill(dtype: torch.dtype, heads: int, kv_heads: int, start: int, tokens: int) -> None:
    pool, pages, kv = scattered([start + tokens], kv_heads, 8, dtype)
    q = queries(tokens, heads, dtype)
    plan = plan_prefill(pool, pages[0], start, tokens, dtype)
    out = paged_prefill_attention(q, pool, 1, plan, 0.3)
    assert out.shape == q.shape and out.dtype == dtype
    assert torch.allclose(out.double(), attention64(q, kv[0], start, 0.3), atol=TOLERANCE[dtype])


@pytest.mark.parametrize("block", [1, 4, 6])
def test_prefill_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_reference, "BLOCK", block)
    pool, pages, kv = scattered([19], 2, 8, torch.float32)
    q = queries(16, 4, torch.float32)
    plan = plan_prefill(pool, pages[0], 3, 16, q.dtype)
    assert len(plan.blocks) > 2
    out = paged_prefill_attention(q, pool, 1, plan, 0.3)
    assert torch.allclose(out.double(), attention64(q, kv[0], 3, 0.3), atol=2e-6)


def test_longer_page_lists_than_needed_are_fine() -> None:
    pool, pages, kv = scattered([5, 9], 1, 8, torch.float32)
    plan = plan_decode(pool, [pages[0] + pages[1], pages[1]], [5, 9])
    out = paged_decode_attention(queries(2, 1, torch.float32), pool, 1, plan, 1.0)
    want = attention64(queries(2, 1, torch.float32)[:1], kv[0], 4, 1.0)
    assert torch.allclose(out[:1].double(), want, atol=2e-6)


def test_wrong_operands_are_refused() -> None:
    pool, pages, _ = scattered([5, 9], 2, 8, torch.float32)
    with pytest.raises(ValueError, match="do not cover"):
        plan_decode(pool, [pages[0], pages[1][:1]], [5, 9])
    with pytest.raises(ValueError, match="outside"):
        plan_decode(pool, [[999, 1], pages[1]], [5, 9])
    with pytest.raises(ValueError, match="do not cover"):
        plan_prefill(pool, pages[0], 6, 4, torch.float32)
    with pytest.raises(ValueError, match="outside"):
        plan_prefill(pool, [-1, 2], 0, 5, torch.float32)
    with pytest.raises(ValueError, match="contiguous"):
        plan_prefill(pool.transpose(1, 2), pages[0], 0, 5, torch.float32)
    decode = plan_decode(pool, pages, [5, 9])
    with pytest.raises(ValueError, match="do not cover"):
        plan_decode(pool, pages, [5, -1])
    with pytest.raises(ValueError, match="sinks"):
        paged_decode_attention(queries(2, 4, pool.dtype), pool, 1, decode, 1.0, torch.zeros(3))
    with pytest.raises(ValueError, match="layer 2 is outside"):
        paged_decode_attention(queries(2, 4, pool.dtype), pool, 2, decode, 1.0)
    for q in (queries(3, 4, pool.dtype), queries(2, 3, pool.dtype), queries(2, 4, torch.bfloat16)):
        with pytest.raises(ValueError):
            paged_decode_attention(q, pool, 1, decode, 1.0)
    prefill = plan_prefill(pool, pages[0], 0, 5, torch.float32)
    for q in (queries(4, 4, pool.dtype), queries(5, 3, pool.dtype), queries(5, 4, torch.bfloat16)):
        with pytest.raises(ValueError):
            paged_prefill_attention(q, pool, 1, prefill, 1.0)
