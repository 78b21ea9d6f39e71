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
    assert sample(LOGITS, [(Sampling(seed=1), i) for i in range(4)]) == LOGITS.argmax(-1).tolist()


def test_as_many_parameters_as_rows() -> None:
    with pytest.raises(ValueError, match="4 rows"):
        sample(LOGITS, [(Sampling(), 0)])
