"""sample(): one token per row, each by its own parameters."""

from __future__ import annotations

import pytest
import torch

from engine.core.types import Sampling
from engine.runner import sample

LOGITS = torch.randn(4, 300, generator=torch.Generator().manual_seed(0))


def test_rows_are_independent_of_their_company() -> None:
    params = [
        (Sampling(), 3),
        (Sampling(temperature=1.0, seed=7), 12),
        (Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=7), 12),
        (Sampling(temperature=1.0, seed=8), 12),
    ]
    together = sample(LOGITS, params)
    assert together == [sample(LOGITS[i : i + 1], params[i : i + 1])[0] for i in range(4)]
    assert sample(LOGITS.flip(0), params[::-1]) == together[::-1]


def test_greedy_is_the_exact_argmax() -> None:
    sampled = sample(LOGITS, [(Sampling(seed=1), i) for i in range(4)])
    assert [s.token for s in sampled] == LOGITS.argmax(-1).tolist()


def test_logprobs_are_the_models_own_whatever_the_filters() -> None:
    params = Sampling(temperature=0.1, top_k=5, seed=3, logprobs=4)
    sampled = [*sample(LOGITS[:1], [(params, 9)]), *sample(LOGITS[1:2], [(Sampling(logprobs=0), 9)])]
    expected = torch.softmax(LOGITS.double(), -1).log()
    for row, one in zip(expected, sampled, strict=False):
        assert one.logprob is not None
        assert one.logprob.value == pytest.approx(float(row[one.token]), abs=1e-5)
    assert sampled[0].logprob is not None and sampled[1].logprob is not None
    values, tokens = expected[0].topk(4)
    assert [t for t, _ in sampled[0].logprob.top] == tokens.tolist()
    assert [v for _, v in sampled[0].logprob.top] == pytest.approx(values.tolist(), abs=1e-5)
    assert sampled[1].logprob.top == []
    assert sample(LOGITS[:1], [(Sampling(), 9)])[0].logprob is None


def test_as_many_parameters_as_rows() -> None:
    with pytest.raises(ValueError, match="4 rows"):
        sample(LOGITS, [(Sampling(), 0)])
