"""A head range of pages, gathered and put back."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.kv_pack import kv_pack, kv_unpack
from tests.kernels.cases.case import normal

PAGES = torch.tensor([5, 0, 3])


def test_packed_pages_are_the_heads_of_the_pages_in_order() -> None:
    pool = normal(6, 4, 2, 2, 3, 5)
    packed = kv_pack(pool, PAGES, (1, 3))
    assert packed.shape == (3, 2, 2, 2, 3, 5) and packed.is_contiguous()
    for at, page in enumerate(PAGES.tolist()):
        assert torch.equal(packed[at], pool[page, 1:3])


def test_unpacking_changes_those_heads_of_those_pages_alone() -> None:
    pool, other = normal(6, 4, 2, 2, 3, 5), torch.zeros(6, 4, 2, 2, 3, 5)
    kv_unpack(other, PAGES, (1, 3), kv_pack(pool, PAGES, (1, 3)))
    assert torch.equal(other[PAGES, 1:3], pool[PAGES, 1:3])
    other[PAGES, 1:3] = 0
    assert not other.any()


def test_wrong_operands_are_refused() -> None:
    pool = normal(6, 4, 2, 2, 3, 5)
    for pages, heads in ((PAGES.int(), (0, 1)), (PAGES, (2, 2)), (PAGES, (0, 5)), (PAGES[None], (0, 1))):
        with pytest.raises(ValueError, match="heads"):
            kv_pack(pool, pages, heads)
    for page in (-1, 6):
        with pytest.raises(ValueError, match=r"outside 0\.\.5"):
            kv_pack(pool, torch.tensor([page]), (0, 1))
        with pytest.raises(ValueError, match=r"outside 0\.\.5"):
            kv_unpack(pool, torch.tensor([page]), (0, 1), normal(1, 1, 2, 2, 3, 5))
    with pytest.raises(ValueError, match="packed"):
        kv_unpack(pool, PAGES, (0, 1), normal(3, 2, 2, 2, 3, 5))
