"""The references of MLA, sparse attention and the compressors against float64 and plain loops."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.compress import compress
from kernels.ops.mla_decode import mla_decode
from kernels.ops.sparse_decode import sparse_decode
from tests.kernels.cases.case import normal


def attention(
    q: torch.Tensor, rows: torch.Tensor, values: int, scale: float, sink: float | None
) -> torch.Tensor:
    """One head in float64."""
    scores = rows.double() @ q.double() * scale
    top = float(scores.max()) if sink is None else max(float(scores.max()), sink)
    weights = (scores - top).exp()
    total = weights.sum() + (0.0 if sink is None else float(torch.tensor(sink - top).double().exp()))
    return (weights / total) @ rows[:, :values].double()


def test_mla_decode() -> None:
    q, pool = normal(3, 2, 10), normal(9, 3, 4, 10, seed=1)
    table = torch.tensor([[2, 5, 0], [7, 7, 7], [1, 8, 3]], dtype=torch.int32)
    lengths = torch.tensor([9, 0, 12], dtype=torch.int32)
    found = mla_decode(q, pool[:, 1], table, lengths, 6, 0.4)
    assert not found[1].any()
    for row in (0, 2):
        rows = torch.cat([pool[page, 1] for page in table[row].tolist()])[: int(lengths[row])]
        for head in range(2):
            want = attention(q[row, head], rows, 6, 0.4, None)
            assert torch.allclose(found[row, head].double(), want, atol=1e-6)


def test_sparse_decode_is_one_softmax_over_both_lists_and_the_sink() -> None:
    q, a, b, sinks = normal(2, 3, 8), normal(10, 8, seed=1), normal(20, 8, seed=2), normal(3, seed=3)
    slots = (torch.tensor([[1, -1, 4], [-1, -1, -1]]), torch.tensor([[0, 19, -1, 7], [3, -1, -1, -1]]))
    found = sparse_decode(q, (a, b), slots, 8, 0.5, sinks)
    for row in range(2):
        rows = torch.cat([c[s[row][s[row] >= 0]] for c, s in zip((a, b), slots, strict=True)])
        for head in range(3):
            want = attention(q[row, head], rows, 8, 0.5, float(sinks[head]))
            assert torch.allclose(found[row, head].double(), want, atol=1e-6)


def test_compress_by_channel() -> None:
    kv, gate, bias = normal(3, 4, 6), normal(3, 4, 6, seed=1), normal(4, 6, seed=2)
    found = compress(kv, gate, bias)
    for w in range(3):
        for c in range(6):
            weights = torch.softmax((gate[w, :, c] + bias[:, c]).double(), 0)
            assert float(found[w, c]) == pytest.approx(float(weights @ kv[w, :, c].double()), abs=1e-5)


def test_compress_with_the_window_before() -> None:
    kv, gate, bias = normal(3, 2, 8), normal(3, 2, 8, seed=1), normal(2, 8, seed=2)
    found = compress(kv, gate, bias, torch.tensor([-1, 0, 1], dtype=torch.int32))
    for w in range(3):
        for c in range(4):
            own = [(gate[w, t, 4 + c] + bias[t, 4 + c], kv[w, t, 4 + c]) for t in range(2)]
            before = [(gate[w - 1, t, c] + bias[t, c], kv[w - 1, t, c]) for t in range(2)] if w else []
            logits, values = (torch.stack(x).double() for x in zip(*before, *own, strict=True))
            want = float(torch.softmax(logits, 0) @ values)
            assert float(found[w, c]) == pytest.approx(want, abs=1e-5)


def test_wrong_operands_are_refused() -> None:
    table, lengths = torch.zeros(1, 2, dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    for q, cache, values in (
        (normal(1, 2, 8), normal(4, 4, 7), 4),
        (normal(1, 2, 8), normal(4, 4, 8), 9),
        (normal(2, 2, 8), normal(4, 4, 8), 4),
        (normal(1, 2, 8).double(), normal(4, 4, 8), 4),
    ):
        with pytest.raises(ValueError):
            mla_decode(q, cache, table, lengths, values, 1.0)
    with pytest.raises(ValueError, match="2 pages of 4 do not cover 9 tokens"):
        mla_decode(normal(1, 2, 8), normal(4, 4, 8), table, lengths + 6, 4, 1.0)
    slots = torch.zeros(1, 2, dtype=torch.int64)
    for sinks, own in ((normal(3), slots), (None, slots.int()), (None, slots[0])):
        with pytest.raises(ValueError):
            sparse_decode(normal(1, 2, 8), (normal(4, 8), normal(4, 8)), (slots, own), 8, 1.0, sinks)
    with pytest.raises(ValueError):
        compress(normal(2, 4, 6), normal(2, 4, 6), normal(4, 5))
    with pytest.raises(ValueError):
        compress(normal(2, 0, 6), normal(2, 0, 6), normal(0, 6))
    with pytest.raises(ValueError):
        compress(normal(2, 4, 5), normal(2, 4, 5), normal(4, 5), torch.zeros(2, dtype=torch.int32))
