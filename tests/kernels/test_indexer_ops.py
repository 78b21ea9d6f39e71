"""The indexer's references against float64, plain loops, and what a checksum must see."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.index_k import verify_index_k, write_index_k
from kernels.ops.index_logits import index_logits
from kernels.ops.topk import topk
from tests.kernels.cases.case import normal


def test_topk_is_stable_whatever_the_shape() -> None:
    scores = torch.randint(0, 4, (20, 50), generator=torch.Generator().manual_seed(0)).float()
    lengths = torch.arange(20, dtype=torch.int32) * 2 + 5
    for row, found in enumerate(topk(scores, lengths, 12).tolist()):
        length = int(lengths[row])
        ranked = sorted(range(length), key=lambda i: (-float(scores[row, i]), i))[:12]
        assert sorted(i for i in found if i >= 0) == sorted(ranked)
        assert found.count(-1) == max(0, 12 - length)
        alone = topk(scores[row : row + 1], lengths[row : row + 1], 12)[0].tolist()
        assert alone == found
        if length > 12:
            least = min(float(scores[row, i]) for i in ranked)
            order = [(float(scores[row, i]) == least, i) for i in found]
            assert order == sorted(order)


def test_index_logits() -> None:
    q, weights, cache = normal(3, 4, 8), normal(3, 4, seed=1), normal(9, 5, 8, seed=2)
    table = torch.tensor([[3, 1, 8], [0, 0, 0], [7, 2, 4]], dtype=torch.int32)
    lengths = torch.tensor([12, 0, 15], dtype=torch.int32)
    found = index_logits(q, weights, cache, table, lengths, 15)
    for row, length in enumerate(lengths.tolist()):
        assert (found[row, length:] == float("-inf")).all()
        for at in range(length):
            key = cache[table[row, at // 5], at % 5].double()
            want = sum(weights[row, h].double() * max(0.0, float(q[row, h].double() @ key)) for h in range(4))
            assert float(found[row, at]) == pytest.approx(float(want), abs=1e-4)


def written() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    cache, sums = torch.zeros(64, 32, dtype=torch.bfloat16), torch.zeros(64, dtype=torch.int32)
    slots = torch.randperm(64, generator=torch.Generator().manual_seed(1))[:20]
    positions = torch.arange(20, dtype=torch.int32)
    write_index_k(cache, sums, normal(20, 32), slots, slots, positions)
    return cache, sums, slots, positions


def test_every_single_bit_flip_of_a_row_is_seen() -> None:
    cache, sums, slots, positions = written()
    assert verify_index_k(cache, sums, slots, slots, positions).all()
    bits = cache.view(torch.int16)
    for lane in range(32):
        for bit in range(16):
            bits[slots[3], lane] ^= 1 << bit if bit < 15 else -(1 << 15)
            assert verify_index_k(cache, sums, slots, slots, positions).nonzero().numel() == 19
            bits[slots[3], lane] ^= 1 << bit if bit < 15 else -(1 << 15)


def test_what_an_overlapping_write_leaves_is_seen() -> None:
    cache, sums, slots, positions = written()
    wrong = {
        "another valid row": cache[slots[4]].clone(),
        "its own lanes in another order": cache[slots[3]].flip(0),
        "zeros": torch.zeros(32),
    }
    for name, row in wrong.items():
        broken = cache.clone()
        broken[slots[3]] = row
        assert verify_index_k(broken, sums, slots, slots, positions).tolist().count(False) == 1, name
    shifted = verify_index_k(cache, sums, slots, slots, positions + 1)
    assert not shifted.any(), "a row of another position"


def test_a_checksum_is_of_the_position_and_not_of_the_slot() -> None:
    cache, sums, slots, positions = written()
    other, others = torch.zeros_like(cache), torch.zeros_like(sums)
    write_index_k(other, others, normal(20, 32), (slots + 7) % 64, slots, positions)
    assert torch.equal(sums, others)


def test_wrong_operands_are_refused() -> None:
    scores, lengths = normal(2, 8), torch.tensor([8, 8], dtype=torch.int32)
    for wrong in (
        (scores[0], lengths, 2),
        (scores, lengths.long(), 2),
        (scores, lengths, 0),
        (scores.double(), lengths, 1),
    ):
        with pytest.raises(ValueError):
            topk(*wrong)
    cache, sums, slots, positions = written()
    with pytest.raises(ValueError):
        write_index_k(cache, sums, normal(19, 32), slots, slots, positions)
    with pytest.raises(ValueError):
        verify_index_k(cache, sums.long(), slots, slots, positions)
    with pytest.raises(ValueError):
        index_logits(normal(1, 2, 8), normal(1, 2), normal(3, 4, 7), torch.zeros(1, 1).int(), lengths[:1], 4)
