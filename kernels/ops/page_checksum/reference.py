"""A multilinear sum over stored words, with odd weights by logical place, modulo 2**64.

The words of one head's row [head_dim] are added first and then weighed by (token position, head, layer,
key or value). So the sums of ranks that share out the heads add up to the sum of all heads, and the sums
of two small pages to that of the large page they make. One flipped bit changes a row by a power of two,
which an odd weight cannot cancel; pages, heads, layers or slots that changed places are weighed
differently. What is not seen: words that changed places within one row, which no transfer moves alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise

import torch

from kernels.ops.pages import check_inside, check_pool

_WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.int8))


def page_checksum(
    pool: torch.Tensor, pages: Sequence[int], first: int, first_head: int, tokens: int, layers: int
) -> torch.Tensor:
    """int64 [len(pages), groups] of a contiguous pool [pages, kv_heads, layers, k/v, page_size, dim].

    `pages` are consecutive logical pages of one sequence from number `first` on, `first_head` is the
    model's index of the pool's first head. Slots of tokens past the sequence's `tokens` do not count. A
    group is `layers` layers, the last one may be smaller. ValueError for operands that do not fit.
    """
    check(pool, pages, first, first_head, layers)
    count, (heads, depth, kinds, slots) = len(pages), pool.shape[1:5]
    rows = torch.empty(count, heads, depth, kinds, slots, dtype=torch.int64, device=pool.device)
    words = pool.view(word(pool))
    for begin, end in _runs(pages):
        page, last = pages[begin], pages[begin] + end - begin
        torch.sum(words[page:last], -1, dtype=torch.int64, out=rows[begin:end])
    by_token, by_place = weights(pool, count, first, first_head, tokens)
    by_token = by_token.view(count, 1, 1, 1, slots)
    each = (rows.mul_(by_token.to(pool.device)).sum(-1) * by_place.to(pool.device)).sum((1, 3))
    group = torch.arange(depth, device=pool.device) // layers
    return each.new_zeros(count, -(-depth // layers)).index_add_(1, group, each)


def check(pool: torch.Tensor, pages: Sequence[int], first: int, first_head: int, layers: int) -> None:
    check_pool(pool)
    check_inside(pool, pages)
    if min(first, first_head) < 0 or layers < 1:
        raise ValueError(f"first page {first}, first head {first_head}, {layers} layers in a group")


def weights(
    pool: torch.Tensor, count: int, first: int, first_head: int, tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """int64 by token [count * page_size] and by place [kv_heads, layers, k/v]; 0 past the last token."""
    heads, depth, kinds, slots = pool.shape[1:5]
    return (
        _by_token(first * slots, (first + count) * slots, tokens),
        _by_place(first_head, heads, depth, kinds),
    )


def word(pool: torch.Tensor) -> torch.dtype:
    """The widest integer that a row is made of."""
    size = pool.shape[5] * pool.element_size()
    return next(kind for width, kind in _WORDS if size % width == 0 and width >= pool.element_size())


def _runs(pages: Sequence[int]) -> list[tuple[int, int]]:
    """Half-open ranges of `pages` that lie side by side in the pool: one call each."""
    breaks = [i + 1 for i, (a, b) in enumerate(pairwise(pages)) if b != a + 1]
    edges = [0, *breaks, len(pages)]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def _by_token(begin: int, end: int, tokens: int) -> torch.Tensor:
    weights = _token_weights(max(1 << 12, 1 << (end - 1).bit_length()))[begin:end]
    if end <= tokens:
        return weights
    return torch.cat((weights[: max(tokens - begin, 0)], weights.new_zeros(end - max(tokens, begin))))


@functools.lru_cache(maxsize=4)
def _token_weights(count: int) -> torch.Tensor:
    return _weights(torch.arange(count), 1)


@functools.lru_cache(maxsize=16)
def _by_place(first_head: int, heads: int, depth: int, kinds: int) -> torch.Tensor:
    head = torch.arange(first_head, first_head + heads).view(-1, 1, 1)
    layer = torch.arange(depth).view(-1, 1)
    return _weights((head << 24) + (layer << 1) + torch.arange(kinds), 2)


def _weights(keys: torch.Tensor, stream: int) -> torch.Tensor:
    """An odd pseudo-random int64 for each key: splitmix64, https://prng.di.unimi.it/splitmix64.c."""
    z = (keys + stream * 0x632BE59BD9B4E019) * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return (z ^ _shifted(z, 31)) | 1


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
