"""Which bytes of a page go to which rank of the peer, for any two tensor-parallel and page sizes.

A page of a rank is one block [kv_head, layer, k/v, slot, dim], so the heads that two ranks share are
one contiguous run in either page: one descriptor per page and receiving rank. Where the two page sizes
differ, only the slots of one head, layer and k/v lie together on both sides: a descriptor for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.core.types import Shape

# Names of the layouts in a fingerprint: ranks share out the heads, or each holds all of them, in blocks of
# heads or in a block that only the model can read.
HEAD_MAJOR, REPLICATED, OPAQUE = "head-major-1", "replicated-1", "opaque-1"


def layout_name(shape: Shape) -> str:
    if shape.opaque:
        return OPAQUE
    return REPLICATED if shape.replicated else HEAD_MAJOR


class Unit(NamedTuple):
    """The smaller of two page sizes, in which pages are written: the larger one holds several.

    `tokens` is its size; a page of the sender is `src` units, one of the receiver `dst`.
    """

    tokens: int
    src: int
    dst: int


PAGE = Unit(1, 1, 1)  # where page sizes are equal or do not matter yet


def unit_of(src: int, dst: int) -> Unit | None:
    """For page sizes of `src` and `dst` tokens; None where neither divides the other."""
    small = min(src, dst)
    return None if small < 1 or src % small or dst % small else Unit(small, src // small, dst // small)


def units_of(pages: Sequence[int], each: int) -> list[int]:
    """The units that make up these pages, `each` of them a page."""
    return [page * each + i for page in pages for i in range(each)]


@dataclass(frozen=True)
class Grid:
    """Equal pieces of one side's pool: piece n lies at byte `offset + n * stride`.

    From a page to the next there are `chunks` times `each` pieces: each chunk is cut into `each` units.
    """

    offset: int
    stride: int
    chunks: int = 1
    each: int = 1

    def pick(self, units: Sequence[int], pieces: int) -> npt.NDArray[np.int32]:
        """The numbers of the pieces that these units have in the first `pieces` chunks, unit by unit."""
        page, part = np.divmod(np.asarray(units, dtype=np.int64), self.each)
        chunk = page[:, None] * self.chunks + np.arange(pieces)
        return (chunk * self.each + part[:, None]).astype(np.int32).ravel()

    def count(self, pages: int, pieces: int) -> int:
        """Pieces of a pool up to its last page's first `pieces` chunks."""
        return ((pages - 1) * self.chunks + pieces) * self.each


@dataclass(frozen=True)
class Run:
    """What rank `rank` of the peer gets of a unit: `pieces` of `length` bytes, from grid to grid."""

    rank: int
    src: Grid
    dst: Grid
    pieces: int
    length: int

    @property
    def bytes(self) -> int:
        return self.pieces * self.length


def runs(
    shape: Shape,
    mine: tuple[int, int],
    theirs: Sequence[tuple[int, int]],
    *,
    page_size: int | None = None,
    rank: int = 0,
    tp: int = 1,
) -> list[Run]:
    """The runs of sending rank `rank` of `tp` with heads `mine`; `theirs[r]` are the heads of the peer's
    rank r, whose pages hold `page_size` tokens (None: as many as here). ValueError when neither page size
    divides the other. Of a replicated cache each receiving rank is written by one sending rank.
    """
    unit = unit_of(shape.page_size, page_size or shape.page_size)
    if unit is None:
        raise ValueError(f"pages of {shape.page_size} and of {page_size} tokens have no common unit")
    found = []
    for to, heads in enumerate(theirs):
        low, high = max(mine[0], heads[0]), min(mine[1], heads[1])
        if low >= high or (shape.replicated and to % tp != rank):
            continue
        if unit.src == unit.dst:
            src, dst = (_whole(shape, own, low) for own in (mine, heads))
            found.append(Run(to, src, dst, 1, (high - low) * shape.head_bytes))
        else:
            src, dst = _cut(shape, mine, low, unit.src, unit), _cut(shape, heads, low, unit.dst, unit)
            found.append(Run(to, src, dst, (high - low) * shape.chunks, _piece(shape, unit)))
    return found


def _whole(shape: Shape, own: tuple[int, int], low: int) -> Grid:
    """One piece a page: all from head `low` on that both ranks hold."""
    return Grid((low - own[0]) * shape.head_bytes, page_bytes(shape, own))


def _cut(shape: Shape, own: tuple[int, int], low: int, each: int, unit: Unit) -> Grid:
    """A piece for each chunk [slot, dim] of a page and unit in it, from head `low` on."""
    piece = _piece(shape, unit)
    chunks = (own[1] - own[0]) * shape.chunks
    return Grid((low - own[0]) * shape.chunks * each * piece, piece, chunks, each)


def _piece(shape: Shape, unit: Unit) -> int:
    """Bytes of a unit's slots of one head, layer and k/v."""
    return unit.tokens * shape.head_dim * shape.itemsize


def page_bytes(shape: Shape, heads: tuple[int, int]) -> int:
    """Size of one page of a rank that holds `heads`."""
    return (heads[1] - heads[0]) * shape.head_bytes


def covers(kv_heads: int, ranges: Sequence[tuple[int, int]], replicated: bool = False) -> bool:
    """Whether the ranges of ranks 0.. partition all heads in order (empty ranges allowed), or each of
    them is all heads of a replicated cache."""
    if replicated:
        return bool(ranges) and all(tuple(r) == (0, kv_heads) for r in ranges)
    at = 0
    for first, last in ranges:
        if first != at or last < first:
            return False
        at = last
    return at == kv_heads
