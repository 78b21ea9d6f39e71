"""Re-slicing of pages between any two tensor-parallel sizes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.core.types import Shape, split_heads
from engine.transfer.layout import covers, page_bytes, runs

SIZES = st.integers(1, 9)


@given(heads=st.integers(1, 12), src_tp=SIZES, dst_tp=SIZES)
def test_every_byte_goes_to_its_place_once(heads: int, src_tp: int, dst_tp: int) -> None:
    shape = Shape(layers=2, kv_heads=heads, head_dim=3, page_size=2, itemsize=1)
    theirs = [split_heads(heads, dst_tp, r) for r in range(dst_tp)]
    page = torch.arange(heads * shape.head_bytes) % 251
    got = [torch.full((page_bytes(shape, r),), -1) for r in theirs]
    for rank in range(src_tp):
        mine = split_heads(heads, src_tp, rank)
        block = page[mine[0] * shape.head_bytes : mine[1] * shape.head_bytes]
        for run in runs(shape, mine, theirs):
            assert run.length > 0
            target = got[run.rank][run.dst : run.dst + run.length]
            assert (target == -1).all(), "two runs overlap"
            target[:] = block[run.src : run.src + run.length]
    assert torch.equal(torch.cat(got), page)


def test_a_page_costs_one_run_per_receiving_rank() -> None:
    shape = Shape(layers=30, kv_heads=3, head_dim=64, page_size=16, itemsize=4)
    assert len(runs(shape, (0, 3), [(0, 3)])) == 1
    assert [(r.rank, r.length // shape.head_bytes) for r in runs(shape, (0, 3), [(0, 2), (2, 3)])] == [
        (0, 2),
        (1, 1),
    ]


def test_covers() -> None:
    assert covers(3, [(0, 2), (2, 3), (3, 3)])
    assert not covers(3, [(0, 2), (1, 3)])
    assert not covers(3, [(0, 2)])
