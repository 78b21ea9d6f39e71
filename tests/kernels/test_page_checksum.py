"""The page checksum: equal for any split of heads and pages, different for what a transfer can break."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kernels.ops.page_checksum import page_checksum

PAGES, HEADS, LAYERS, SLOTS, DIM = 12, 5, 7, 4, 8
PER = 3  # layers in a group: 3, 3 and 1
LOGICAL = [7, 2, 3, 4, 11]
TOKENS = 4 * SLOTS + 2  # the last page is half empty


def make_pool(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    maker = torch.Generator().manual_seed(4)
    return torch.randn(PAGES, HEADS, LAYERS, 2, SLOTS, DIM, generator=maker).to(dtype)


def sums(pool: torch.Tensor, pages: list[int] = LOGICAL, first: int = 0, head: int = 0) -> torch.Tensor:
    return page_checksum(pool, pages, first, head, TOKENS, PER)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cut", [(0, 5), (0, 2, 5), (0, 0, 1, 4, 5)])
def test_parts_of_any_split_of_the_heads_add_up(dtype: torch.dtype, cut: tuple[int, ...]) -> None:
    pool = make_pool(dtype)
    parts = [sums(pool[:, a:b].contiguous(), head=a) for a, b in pairwise(cut)]
    assert torch.equal(torch.stack(parts).sum(0), sums(pool))
    assert sums(pool).shape == (len(LOGICAL), 3)


def test_parts_of_a_sequence_are_those_of_the_whole() -> None:
    pool = make_pool()
    assert torch.equal(torch.cat((sums(pool, LOGICAL[:2]), sums(pool, LOGICAL[2:], 2))), sums(pool))


def test_two_small_pages_add_up_to_a_large_one() -> None:
    large = make_pool()
    small = large.unflatten(4, (2, SLOTS // 2)).movedim(4, 1).contiguous().flatten(0, 1)
    pages = [half for page in LOGICAL for half in (2 * page, 2 * page + 1)]
    assert torch.equal(sums(small, pages).view(len(LOGICAL), 2, 3).sum(1), sums(large))


def test_slots_past_the_last_token_do_not_count() -> None:
    pool, before = make_pool(), sums(make_pool())
    pool[LOGICAL[-1], :, :, :, 2:] = 9.0
    assert torch.equal(sums(pool), before)
    pool[LOGICAL[-1], 0, 0, 0, 1, 0] += 1
    assert not torch.equal(sums(pool), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_one_flipped_bit_shows_in_its_page_and_group_alone(dtype: torch.dtype) -> None:
    pool = make_pool(dtype)
    before, bits = sums(pool), pool.view(torch.int32 if dtype == torch.float32 else torch.int16)
    maker = torch.Generator().manual_seed(1)
    for _ in range(300):
        at = [int(torch.randint(n, (1,), generator=maker)) for n in (4, HEADS, LAYERS, 2, SLOTS, DIM)]
        bit = int(torch.randint(8 * pool.element_size() - 1, (1,), generator=maker))
        place = (LOGICAL[at[0]], *at[1:])
        bits[place] ^= 1 << bit
        differs = (sums(pool) != before).nonzero().tolist()
        bits[place] ^= 1 << bit
        assert differs == [[at[0], at[2] // PER]], (at, bit)


def test_what_changed_places_shows() -> None:
    pool, before = make_pool(), sums(make_pool())
    wrong = {
        "pages": sums(pool, [2, 7, *LOGICAL[2:]]),
        "a stale page": sums(pool, [7, 2, 3, 5, 11]),
        "a zeroed page": sums(pool.index_fill(0, torch.tensor([3]), 0.0)),
        "heads": sums(pool.roll(1, 1)),
        "layers": sums(pool.roll(1, 2)),
        "keys and values": sums(pool.flip(3)),
        "slots": sums(pool.roll(1, 4)),
        "a shift of the head range": sums(pool, head=1),
        "a shift of the sequence": sums(pool, first=1),
    }
    assert {name for name, found in wrong.items() if torch.equal(found, before)} == set()


def test_equal_bits_in_places_that_differ_have_sums_that_differ() -> None:
    pool = torch.ones(PAGES, HEADS, LAYERS, 2, SLOTS, DIM)
    found = sums(pool)
    assert found.unique().numel() == found.numel()


def test_rows_of_odd_sizes_and_ranks_without_heads() -> None:
    odd = torch.randn(3, 2, 2, 2, 4, 3)
    assert page_checksum(odd, [1, 0], 0, 0, 8, 1).unique().numel() == 4
    assert not page_checksum(odd[:, :0].contiguous(), [1, 0], 0, 2, 8, 1).any()


def test_wrong_operands_are_refused() -> None:
    pool = make_pool()
    for page in (-1, PAGES):
        with pytest.raises(ValueError, match=r"outside 0\.\.11"):
            page_checksum(pool, [0, page], 0, 0, TOKENS, PER)
    for first, head, layers in ((-1, 0, PER), (0, -1, PER), (0, 0, 0)):
        with pytest.raises(ValueError, match="layers in a group"):
            page_checksum(pool, [0], first, head, TOKENS, layers)
    for other in (pool.transpose(1, 2), pool[0]):
        with pytest.raises(ValueError, match="contiguous"):
            page_checksum(other, [0], 0, 0, TOKENS, PER)
