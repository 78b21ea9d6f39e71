"""Checksums of a room as leaders see them: added up over ranks, and compared by logical page.

A sum is over the heads that one rank holds, so ranks that share out the heads are added; ranks that hold
the same heads must have equal sums and count once. Sums of small pages add up to the sum of the page they
make, so the two sides may page differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

MOST_GROUPS = 8
MOST_NAMED = 8
Table = npt.NDArray[np.uint64]


class PageSums(msgspec.Struct, frozen=True, kw_only=True):
    """Checksums of pages of `page_size` tokens in logical order: little-endian uint64 [pages, groups]."""

    page_size: int
    data: bytes


def layers_per_sum(layers: int) -> int:
    """Layers that share a checksum, so that there are at most MOST_GROUPS of them."""
    return -(-layers // MOST_GROUPS)


def groups_of(layers: int) -> int:
    return -(-layers // layers_per_sum(layers))


class Tally:
    """The sums of one room over the ranks of a side. `heads[r]` is the head range of rank r."""

    def __init__(self, heads: Sequence[tuple[int, int]], layers: int, page_size: int) -> None:
        self._heads, self._layers, self._page_size = heads, layers, page_size
        self._parts: dict[tuple[int, int], dict[int, Table]] = {}
        self._unequal: list[tuple[int, int]] = []

    def add(self, rank: int, first: int, data: bytes) -> None:
        """A rank's sums from logical page `first` on."""
        part = self._table(data)
        known = self._parts.setdefault(self._heads[rank], {}).setdefault(first, part)
        self._unequal += [(first + page, group) for page, group in np.argwhere(known != part).tolist()]

    def total(self) -> PageSums:
        """The sums over all heads."""
        return PageSums(page_size=self._page_size, data=self._total().astype("<u8", copy=False).tobytes())

    def unequal(self) -> str:
        """Where ranks that hold the same heads differ, as words; empty when they agree."""
        return self._say(self._unequal, self._page_size)

    def misfit(self, other: PageSums, tokens: int, pages: int) -> str:
        """Why `other` are no sums of `tokens` tokens, `pages` pages here, or an empty string."""
        large, small = max(other.page_size, self._page_size), min(other.page_size, self._page_size)
        if small < 1 or large % small:
            return f"pages of {other.page_size} tokens there and {self._page_size} here"
        count = pages if other.page_size == self._page_size else -(-tokens // other.page_size)
        size = count * 8 * groups_of(self._layers)
        return "" if len(other.data) == size else f"{len(other.data)} bytes of sums, not {size}"

    def differs(self, other: PageSums) -> str:
        """Where `other`, that fits, is not equal to these sums, as words; empty when all is equal."""
        large = max(other.page_size, self._page_size)
        mine = _folded(self._total(), large // self._page_size)
        theirs = _folded(self._table(other.data), large // other.page_size)
        return self._say([(page, group) for page, group in np.argwhere(mine != theirs).tolist()], large)

    def _table(self, data: bytes) -> Table:
        return np.frombuffer(data, "<u8").reshape(-1, groups_of(self._layers))

    def _total(self) -> Table:
        whole = [np.concatenate([parts[first] for first in sorted(parts)]) for parts in self._parts.values()]
        return np.sum(whole, 0, dtype=np.uint64)

    def _say(self, wrong: list[tuple[int, int]], page_size: int) -> str:
        per, groups = layers_per_sum(self._layers), dict[int, list[int]]()
        for page, group in wrong:
            groups.setdefault(page, []).append(group)
        places = []
        for page, found in sorted(groups.items())[:MOST_NAMED]:
            spans = [(a * per, min((b + 1) * per, self._layers) - 1) for a, b in _spans(sorted(set(found)))]
            layers = ", ".join(f"{a}..{b}" if a < b else f"{a}" for a, b in spans)
            tokens = f"{page * page_size}..{(page + 1) * page_size - 1}"
            places.append(f"page {page} (tokens {tokens}), layers {layers}")
        more = f" and {len(groups) - MOST_NAMED} more pages" if len(groups) > MOST_NAMED else ""
        return "; ".join(places) + more


def _folded(table: Table, ratio: int) -> Table:
    """Rows added up `ratio` at a time; the last ones may be fewer."""
    padded = np.pad(table, ((0, -len(table) % ratio), (0, 0)))
    return padded.reshape(-1, ratio, table.shape[1]).sum(1, dtype=np.uint64)


def _spans(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as inclusive ranges."""
    spans: list[tuple[int, int]] = []
    for n in numbers:
        if spans and n == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], n)
        else:
            spans.append((n, n))
    return spans
