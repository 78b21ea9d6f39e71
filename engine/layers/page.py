"""What a page holds where the model says so itself: sections of rows, and for each sequence rings of rows.

A page is one block of bytes. A section has the same number of rows, each of one width, in every page: the
entries of the page's tokens. What a sequence keeps of its latest tokens only, in rings, lies in pages of its
own, `state_pages` of them, the first of its list. Every row begins at a multiple of its size and no page
ends within one, so that the pool is also a table of rows of each width, and one number says where a row is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Section:
    """`rows` rows of `width` values a page, for each of `layers` layers that have it (in their order)."""

    name: str
    layers: int
    rows: int
    width: int
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Of one row."""
        return self.width * self.dtype.itemsize


class PageLayout:
    """Sections of entries and of rings for pages of `page_size` tokens; of a ring `rows` is its length."""

    def __init__(self, page_size: int, entries: list[Section], rings: list[Section]) -> None:
        every = [*entries, *rings]
        # A page is also [2, page_size, 8-byte words], as which it is summed.
        self._unit = math.lcm(16 * page_size, *(section.bytes for section in every))
        self._sections = {section.name: section for section in every}
        self._first: dict[str, int] = {}
        end = 0
        for section in entries:
            begin = -(-end // section.bytes)
            self._first[section.name] = begin
            end = (begin + section.layers * section.rows) * section.bytes
        self.page_bytes = -(-max(end, 1) // self._unit) * self._unit
        self._rings: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self.state_pages = self._place(rings)

    def _place(self, rings: list[Section]) -> int:
        """Give every row of every ring its place, one after the other; returns how many pages they take."""
        page = end = 0
        for ring in rings:
            count, places = ring.layers * ring.rows, []
            per_page = self.page_bytes // ring.bytes
            for _ in range(count):
                row = -(-end // ring.bytes)
                if row >= per_page:
                    page, row = page + 1, 0
                places.append((page, row))
                end = (row + 1) * ring.bytes
            table = torch.tensor(places, dtype=torch.int64).view(ring.layers, ring.rows, 2)
            self._rings[ring.name] = (table[..., 0], table[..., 1])
        return page + 1 if rings else 0

    def rows(self, name: str) -> int:
        """How many rows of a section a page has for each layer."""
        return self._sections[name].rows

    def per_page(self, name: str) -> int:
        """How many rows of that section's width lie between the beginnings of two pages."""
        return self.page_bytes // self._sections[name].bytes

    def table(self, pool: torch.Tensor, name: str) -> torch.Tensor:
        """The pool as [rows, width] of that section's kind."""
        section = self._sections[name]
        return pool.view(-1).view(section.dtype).view(-1, section.width)

    def paged(self, pool: torch.Tensor, name: str, layer: int) -> torch.Tensor:
        """[pages, rows, width] of one layer's section of entries; pages lie apart."""
        section, table = self._sections[name], self.table(pool, name)
        begin = self._first[name] + layer * section.rows
        stride = self.per_page(name) * section.width
        shape = (table.shape[0] // self.per_page(name), section.rows, section.width)
        return table.as_strided(shape, (stride, section.width, 1), begin * section.width)

    def entry(self, name: str, layer: int) -> int:
        """A section's first row within a page."""
        return self._first[name] + layer * self._sections[name].rows

    def slots(self, name: str, pages: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Rows in `table` of layer 0's entries `at` (any number from 0 on) of pages int64 of that shape."""
        return pages * self.per_page(name) + self._first[name] + at % self._sections[name].rows

    def ring(self, name: str, layer: int, pages: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Rows in `table` of a ring's places `at` int64 [n]; pages int64 [n, state_pages] are each one's."""
        page, row = (t[layer].to(at.device) for t in self._rings[name])
        place = at % page.shape[0]
        return pages.gather(1, page[place][:, None]).squeeze(1) * self.per_page(name) + row[place]
