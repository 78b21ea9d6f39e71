"""The cut of decode attention: exact, balanced, never empty, and no target can break it."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.ops.splits import MIN_BLOCKS, SplitPlan, SplitWorkspace, Workspaces

PLANS = st.builds(
    lambda kv_heads, group, tokens, block, batch: SplitPlan.of(
        max_batch=batch, heads=kv_heads * group, kv_heads=kv_heads, dim=8, max_tokens=tokens, block=block
    ),
    st.integers(1, 16),
    st.integers(1, 8),
    st.integers(1, 1 << 20),
    st.sampled_from([16, 32, 64, 128]),
    st.integers(1, 64),
)


@given(PLANS, st.data())
def test_splits_cover_a_row_once_and_none_is_empty(plan: SplitPlan, data: st.DataObject) -> None:
    tokens = data.draw(st.integers(0, plan.max_tokens))
    ranges, blocks = plan.ranges(tokens), -(-tokens // plan.block)
    assert len(ranges) == plan.count(tokens) <= plan.splits
    assert bool(ranges) == bool(tokens)
    if ranges:
        assert (ranges[0][0], ranges[-1][1]) == (0, blocks)
        assert all(a[1] == b[0] for a, b in pairwise(ranges))
        sizes = [high - low for low, high in ranges]
        assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


@given(PLANS, st.data())
def test_any_target_shares_all_splits_among_at_least_one_cta(plan: SplitPlan, data: st.DataObject) -> None:
    batch = data.draw(st.integers(0, plan.max_batch))
    target = data.draw(st.integers(1, 1 << 40))
    active = plan.active(batch, target)
    assert 1 <= active <= plan.splits == plan.active(batch, None)
    assert active == 1 or active * batch * plan.kv_heads <= target
    n = plan.count(data.draw(st.integers(0, plan.max_tokens)))
    ctas = min(active, n)
    shares = [range(i * n // ctas, (i + 1) * n // ctas) for i in range(ctas)]
    assert [split for share in shares for split in share] == list(range(n))
    assert all(shares)


def test_the_product_of_a_share_fits_into_32_bits() -> None:
    """The device computes (i + 1) * blocks in int32."""
    longest = SplitPlan.of(max_batch=1, heads=1, kv_heads=1, dim=8, max_tokens=1 << 24, block=16)
    assert longest.splits * -(-longest.max_tokens // longest.block) < 2**31


@pytest.mark.parametrize("target", [0, -1])
def test_a_target_below_one_is_refused(target: int) -> None:
    plan = SplitPlan.of(max_batch=1, heads=2, kv_heads=2, dim=8, max_tokens=100)
    with pytest.raises(ValueError, match="at least 1"):
        plan.active(1, target)


def test_a_plan_without_sense_is_refused() -> None:
    good = {"max_batch": 1, "heads": 4, "kv_heads": 2, "dim": 8, "max_tokens": 10, "block": 16}
    for wrong in ({"max_batch": 0}, {"kv_heads": 3}, {"block": 24}, {"max_tokens": 0}, {"dim": -1}):
        with pytest.raises(ValueError, match="no split plan"):
            SplitPlan.of(**{**good, **wrong})


def test_short_capacities_have_few_splits() -> None:
    plan = SplitPlan.of(max_batch=1, heads=2, kv_heads=2, dim=8, max_tokens=64 * MIN_BLOCKS * 3)
    assert plan.splits == 3


def test_a_workspace_is_poisoned_and_does_not_grow() -> None:
    plan = SplitPlan.of(max_batch=2, heads=4, kv_heads=2, dim=8, max_tokens=1000)
    work = SplitWorkspace(plan, "cpu")
    assert work.rows.isnan().all() and work.lse.isnan().all()
    work.check(2, 4, 2, 8, 1000)
    for wrong in ((3, 4, 2, 8, 10), (1, 4, 2, 8, 1001)):
        with pytest.raises(ValueError, match="does not grow"):
            work.check(*wrong)
    with pytest.raises(ValueError, match="is for 4 over 2 of 8"):
        work.check(1, 4, 1, 8, 10)
    work.rows = torch.zeros(1)
    with pytest.raises(ValueError, match="shape"):
        work.check(1, 4, 2, 8, 10)


def test_each_stream_has_its_own_workspace_and_none_is_made_after_the_seal() -> None:
    works = Workspaces(SplitPlan.of(max_batch=1, heads=1, kv_heads=1, dim=8, max_tokens=10), "cpu")
    a, b = works.of("main"), works.of("side")
    assert a.rows.data_ptr() != b.rows.data_ptr() and works.of("main") is a
    works.seal()
    assert works.of("side") is b
    with pytest.raises(ValueError, match="stream late has no split workspace"):
        works.of("late")
