"""Re-slicing of pages between any two partitions of heads, and page sizes of which one divides the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.types import Shape, split_heads
from engine.transfer.layout import Grid, Run, covers, layout_name, page_bytes, runs, unit_of, units_of

LAYERS, DIM = 2, 3
Ranges = list[tuple[int, int]]
Bytes = npt.NDArray[np.int64]  # one number for each byte, so that each is told from any other


@st.composite
def partitions(draw: st.DrawFn, heads: int) -> Ranges:
    """Any way in which ranks may share out heads in order; some may be left without."""
    cuts = sorted(draw(st.lists(st.integers(0, heads), max_size=4)))
    return list(zip([0, *cuts], [*cuts, heads], strict=True))


@st.composite
def edges(draw: st.DrawFn) -> tuple[Shape, Ranges, int, Ranges]:
    """A sender's shape and ranks, and a receiver's page size and ranks."""
    small, factor, first = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.booleans())
    src, dst = (small * factor, small) if first else (small, small * factor)
    heads, replicated = draw(st.integers(1, 6)), draw(st.booleans())
    shape = Shape(
        layers=LAYERS, kv_heads=heads, head_dim=DIM, page_size=src, itemsize=1, replicated=replicated
    )
    if replicated:
        mine, theirs = ([(0, heads)] * draw(st.integers(1, 4)) for _ in range(2))
    else:
        mine, theirs = draw(partitions(heads)), draw(partitions(heads))
    return shape, mine, dst, theirs


def pool_of(kv: Bytes, heads: tuple[int, int], pages: list[int], size: int) -> Bytes:
    """A rank's pool of 6 pages in which `kv` [token, head, chunk, dim] lies in `pages`; -1 elsewhere."""
    pool = np.full((6, heads[1] - heads[0], LAYERS * 2, size, DIM), -1)
    for token in range(len(kv)):
        pool[pages[token // size], :, :, token % size] = kv[token, heads[0] : heads[1]]
    return pool.ravel()


def where(grid: Grid, run: Run, units: list[int]) -> npt.NDArray[np.int64]:
    """Positions of the bytes that a run moves for these units."""
    pieces = grid.pick(units, run.pieces)
    assert pieces.max() < grid.count(6, run.pieces), "a piece that NIXL's list does not have"
    return (grid.offset + pieces.astype(np.int64) * grid.stride)[:, None] + np.arange(run.length)


@given(edge=edges(), data=st.data())
def test_every_byte_goes_to_its_place_once(
    edge: tuple[Shape, Ranges, int, Ranges], data: st.DataObject
) -> None:
    shape, mine, size, theirs = edge
    unit = unit_of(shape.page_size, size)
    assert unit is not None
    tokens = data.draw(st.integers(1, 3)) * unit.tokens
    kv = np.arange(tokens * shape.kv_heads * LAYERS * 2 * DIM).reshape(tokens, shape.kv_heads, -1, DIM)
    from_pages = data.draw(st.permutations(range(6)))[: -(-tokens // shape.page_size)]
    to_pages = data.draw(st.permutations(range(6)))[: -(-tokens // size)]
    count = tokens // unit.tokens
    src, dst = units_of(from_pages, unit.src)[:count], units_of(to_pages, unit.dst)[:count]
    wanted = [pool_of(kv, heads, to_pages, size) for heads in theirs]
    got = [np.full_like(pool, -1) for pool in wanted]
    for rank, heads in enumerate(mine):
        pool = pool_of(kv, heads, from_pages, shape.page_size)
        for run in runs(shape, heads, theirs, page_size=size, rank=rank, tp=len(mine)):
            assert run.bytes > 0
            here, there = where(run.src, run, src), where(run.dst, run, dst)
            assert (got[run.rank][there] == -1).all(), "a byte is written twice"
            got[run.rank][there] = pool[here]
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_page_costs_one_piece_per_receiving_rank_where_page_sizes_are_equal() -> None:
    shape = Shape(layers=30, kv_heads=3, head_dim=64, page_size=16, itemsize=4)
    assert [(r.pieces, r.length) for r in runs(shape, (0, 3), [(0, 3)])] == [(1, page_bytes(shape, (0, 3)))]
    two = runs(shape, (0, 3), [(0, 2), (2, 3)])
    assert [(r.rank, r.pieces, r.length // shape.head_bytes) for r in two] == [(0, 1, 2), (1, 1, 1)]


def test_a_unit_costs_a_piece_for_each_head_layer_and_kv_where_they_differ() -> None:
    shape = Shape(layers=30, kv_heads=3, head_dim=64, page_size=16, itemsize=4)
    (run,) = runs(shape, (0, 3), [(0, 3)], page_size=32)
    assert (run.pieces, run.length) == (3 * 30 * 2, 16 * 64 * 4)


@pytest.mark.parametrize(("src_tp", "dst_tp"), [(1, 3), (2, 3), (3, 1), (3, 2)])
def test_replicated_caches_are_written_once_by_senders_in_turn(src_tp: int, dst_tp: int) -> None:
    shape = Shape(layers=1, kv_heads=1, head_dim=8, page_size=2, itemsize=2, replicated=True)
    by = {
        run.rank: rank
        for rank in range(src_tp)
        for run in runs(shape, (0, 1), [(0, 1)] * dst_tp, rank=rank, tp=src_tp)
    }
    assert by == {rank: rank % src_tp for rank in range(dst_tp)}


@pytest.mark.parametrize(
    ("src", "dst", "unit"), [(16, 16, (16, 1, 1)), (16, 64, (16, 1, 4)), (6, 2, (2, 3, 1))]
)
def test_the_unit_is_the_smaller_page(src: int, dst: int, unit: tuple[int, int, int]) -> None:
    assert unit_of(src, dst) == unit


@pytest.mark.parametrize(("src", "dst"), [(16, 24), (3, 2), (0, 16), (16, -16)])
def test_page_sizes_of_which_neither_divides_the_other_have_no_unit(src: int, dst: int) -> None:
    assert unit_of(src, dst) is None


def test_covers() -> None:
    assert covers(3, [(0, 2), (2, 3), (3, 3)])
    assert not covers(3, [(0, 2), (1, 3)])
    assert not covers(3, [(0, 2)])
    assert covers(1, [(0, 1), (0, 1)], replicated=True)
    assert not covers(1, [(0, 1), (1, 1)], replicated=True)
    assert not covers(1, [], replicated=True)
    assert [split_heads(3, 2, r) for r in range(2)] == [(0, 2), (2, 3)]


def test_every_rank_holds_all_of_a_replicated_cache() -> None:
    shared = Shape(layers=1, kv_heads=3, head_dim=8, page_size=2, itemsize=2)
    whole = Shape(layers=1, kv_heads=1, head_dim=8, page_size=2, itemsize=1, replicated=True, opaque=True)
    assert [shared.heads(2, rank) for rank in range(2)] == [(0, 2), (2, 3)]
    assert [whole.heads(3, rank) for rank in range(3)] == [(0, 1)] * 3
    assert (layout_name(shared), layout_name(whole)) == ("head-major-1", "opaque-1")
