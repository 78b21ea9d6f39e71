"""Which bytes of a page go to which rank of the peer, for any two tensor-parallel sizes.

A page of a rank is one block [kv_head, layer, k/v, slot, dim], so the heads that two ranks share are
one contiguous run in either page: one descriptor per page and receiving rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.types import Shape


@dataclass(frozen=True)
class Run:
    """`length` bytes at `src` of the sender's page are the bytes at `dst` of rank `rank`'s page."""

    rank: int
    src: int
    dst: int
    length: int


def runs(shape: Shape, mine: tuple[int, int], theirs: Sequence[tuple[int, int]]) -> list[Run]:
    """The runs of a sending rank with heads `mine`; `theirs[r]` are the heads of the peer's rank r."""
    found = []
    for rank, (first, last) in enumerate(theirs):
        low, high = max(mine[0], first), min(mine[1], last)
        if low < high:
            unit = shape.head_bytes
            found.append(Run(rank, (low - mine[0]) * unit, (low - first) * unit, (high - low) * unit))
    return found


def page_bytes(shape: Shape, heads: tuple[int, int]) -> int:
    """Size of one page of a rank that holds `heads`."""
    return (heads[1] - heads[0]) * shape.head_bytes


def covers(kv_heads: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether the ranges of ranks 0.. partition all heads in order (empty ranges allowed)."""
    at = 0
    for first, last in ranges:
        if first != at or last < first:
            return False
        at = last
    return at == kv_heads
