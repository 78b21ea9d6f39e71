"""Pages that a model lays out: every row has a place of its own, within one page."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.layers.page import PageLayout, Section

PAGE, PAGES = 4, 9
KINDS = {torch.float32, torch.bfloat16, torch.int32}


@st.composite
def sections(draw: st.DrawFn, name: str, least: int = 0) -> list[Section]:
    return [
        Section(
            f"{name}{i}",
            draw(st.integers(0, 3)),
            draw(st.integers(1, 5)),
            draw(st.integers(1, 6)),
            draw(st.sampled_from(sorted(KINDS, key=str))),
        )
        for i in range(draw(st.integers(least, 3)))
    ]


def place(pool: torch.Tensor, layout: PageLayout, name: str, rows: torch.Tensor) -> list[tuple[int, int]]:
    """Byte ranges of rows of a section's table."""
    size = layout.page_bytes // layout.per_page(name)
    assert all(0 <= row < layout.table(pool, name).shape[0] for row in rows.tolist())
    return [(row * size, (row + 1) * size) for row in rows.tolist()]


@given(entries=sections("entries", 1), rings=sections("rings"))
@settings(max_examples=60, deadline=None)
def test_rows_neither_overlap_nor_cross_a_page(entries: list[Section], rings: list[Section]) -> None:
    layout = PageLayout(PAGE, entries, rings)
    pool = torch.zeros(PAGES + layout.state_pages, 1, 1, 2, PAGE, layout.page_bytes // 8, dtype=torch.uint8)
    assert layout.page_bytes % 16 == 0
    state = torch.arange(layout.state_pages) + 3
    ranges: list[tuple[int, int]] = []
    for section in entries:
        for layer in range(section.layers):
            at = torch.arange(section.rows)
            offset = layout.entry(section.name, layer) - layout.entry(section.name, 0)
            rows = layout.slots(section.name, torch.full_like(at, 1), at) + offset
            ranges += place(pool, layout, section.name, rows)
            paged = layout.paged(pool, section.name, layer)
            assert paged.shape == (pool.shape[0], section.rows, section.width)
            assert paged[1, 0].data_ptr() - pool.data_ptr() == ranges[-section.rows][0]
    for ring in rings:
        for layer in range(ring.layers):
            at = torch.arange(ring.rows) + 7 * ring.rows
            rows = layout.ring(ring.name, layer, state.expand(ring.rows, -1), at)
            ranges += place(pool, layout, ring.name, rows)
    ranges.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(ranges))
    assert all(a // layout.page_bytes == (b - 1) // layout.page_bytes for a, b in ranges)
    used = {a // layout.page_bytes for a, _ in ranges}
    assert used <= {1, *state.tolist()}


def test_a_ring_holds_its_last_rows() -> None:
    layout = PageLayout(
        PAGE, [Section("e", 1, PAGE, 2, torch.float32)], [Section("r", 2, 6, 2, torch.float32)]
    )
    pool = torch.zeros(8, 1, 1, 2, PAGE, layout.page_bytes // 8, dtype=torch.uint8)
    pages = torch.arange(layout.state_pages).expand(20, -1)
    rows = layout.ring("r", 1, pages, torch.arange(20))
    table = layout.table(pool, "r")
    for position, row in enumerate(rows.tolist()):
        table[row] = position
    assert table[rows[14:]].tolist() == [[p, p] for p in range(14, 20)]


def test_no_rings_need_no_page() -> None:
    assert PageLayout(PAGE, [Section("e", 2, PAGE, 3, torch.bfloat16)], []).state_pages == 0


@pytest.mark.parametrize("width", [1, 3, 576])
def test_a_page_is_as_many_words_as_its_checksum_takes(width: int) -> None:
    layout = PageLayout(PAGE, [Section("e", 1, PAGE, width, torch.bfloat16)], [])
    assert layout.page_bytes % (2 * PAGE * 8) == 0
