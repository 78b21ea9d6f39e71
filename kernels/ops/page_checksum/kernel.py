"""One program a page, head and layer; their integer sums meet in atomics, whose order does not matter."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.launch import Config, choose, launch
from kernels.ops.page_checksum.reference import check, weights, word

CONFIGS = {90: Config(4, 2)}


def page_checksum(
    pool: torch.Tensor, pages: Sequence[int], first: int, first_head: int, tokens: int, layers: int
) -> torch.Tensor:
    """As the reference."""
    check(pool, pages, first, first_head, layers)
    count, (heads, depth, kinds, slots) = len(pages), pool.shape[1:5]
    words = pool.view(word(pool))
    by_token, by_place = (w.to(pool.device) for w in weights(pool, count, first, first_head, tokens))
    sums = torch.zeros((count, -(-depth // layers)), dtype=torch.int64, device=pool.device)
    launch(
        _sum,
        (count, heads * depth),
        {"words": words, "pages": torch.tensor(list(pages), dtype=torch.int64).to(pool.device)}
        | {"by_token": by_token, "by_place": by_place, "sums": sums, "groups": sums.shape[1]}
        | {"depth": depth, "layers": layers, "places": heads * depth},
        ("sums",),
        choose(CONFIGS, pool.device),
        SLOTS=slots,
        SLOTS_PAD=triton.next_power_of_2(slots),
        WORDS=words.shape[5],
        WORDS_PAD=triton.next_power_of_2(words.shape[5]),
        KINDS=kinds,
    )
    return sums


@triton.jit(do_not_specialize=["groups", "depth", "layers", "places"])
def _sum(
    words, pages, by_token, by_place, sums, groups, depth, layers, places,
    SLOTS: tl.constexpr, SLOTS_PAD: tl.constexpr, WORDS: tl.constexpr, WORDS_PAD: tl.constexpr,
    KINDS: tl.constexpr,
):  # fmt: skip
    n, place = tl.program_id(0), tl.program_id(1)
    slot, lane = tl.arange(0, SLOTS_PAD), tl.arange(0, WORDS_PAD)
    real = (slot < SLOTS)[:, None] & (lane < WORDS)[None, :]
    weight = tl.load(by_token + n * SLOTS + slot, mask=slot < SLOTS, other=0)
    total = tl.zeros((), tl.int64)
    for kind in tl.static_range(KINDS):
        run = (tl.load(pages + n) * places + place) * KINDS + kind
        at = run * (SLOTS * WORDS) + slot[:, None] * WORDS + lane[None, :]
        row = tl.sum(tl.load(words + at, mask=real, other=0).to(tl.int64), 1)
        total += tl.sum(row * weight, 0) * tl.load(by_place + place * KINDS + kind)
    tl.atomic_add(sums + n * groups + (place % depth) // layers, total)
