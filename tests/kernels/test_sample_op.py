"""Seeded sampling: the right tokens, in the right shares, from the seed and the position alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from kernels.ops.sample import greedy, sample_row

LOGITS = torch.tensor([0.0, 2.0, 1.0, -3.0, 1.5])


def draws(n: int, **options: float) -> Counter[int]:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} | options
    return Counter(sample_row(LOGITS, **values, seed=5, position=p) for p in range(n))  # type: ignore[arg-type]


def test_greedy_takes_the_first_of_equals() -> None:
    assert greedy(torch.tensor([[1.0, 3.0, 3.0], [5.0, 0.0, 0.0]])).tolist() == [1, 0]


def test_shares_follow_the_softmax() -> None:
    shares = torch.softmax(LOGITS, -1)
    found = draws(4000)
    for token in range(5):
        assert abs(found[token] / 4000 - float(shares[token])) < 0.03


def test_temperature_sharpens_and_flattens() -> None:
    assert draws(500, temperature=0.05)[1] > 490
    assert draws(2000, temperature=50.0)[3] > 300


@pytest.mark.parametrize("temperature", [1e-20, 1e-39, 1e-45, 1e-60, 1e-310])
def test_the_coldest_temperatures_are_greedy(temperature: float) -> None:
    """Scores that overflow are of no softmax; what is masked must not come of it."""
    logits = torch.tensor([0.0, 2.0, 1.0, -3.0, float("-inf")])
    assert {sample_row(logits, temperature, 0, 1.0, 5, p) for p in range(20)} == {1}
    assert {sample_row(logits, temperature, 2, 0.9, 5, p) for p in range(20)} == {1}
    tie = torch.tensor([2.0, float("-inf"), 2.0])
    assert {sample_row(tie, temperature, 0, 1.0, 5, p) for p in range(40)} == {0, 2}


def test_top_k_and_top_p_leave_the_likely_ones() -> None:
    assert set(draws(500, top_k=2)) == {1, 4}
    assert set(draws(500, top_k=1)) == {1}
    assert set(draws(50, top_k=99)) <= set(range(5))
    # Shares are 0.45, 0.27, 0.17, 0.06, ...: one token reaches 0.4, two are needed for 0.5.
    assert set(draws(500, top_p=0.4)) == {1}
    assert set(draws(500, top_p=0.5)) == {1, 4}


def test_seed_and_position_decide() -> None:
    def at(seed: int, position: int) -> int:
        return sample_row(torch.zeros(1000), 1.0, 0, 1.0, seed, position)

    assert at(1, 10) == at(1, 10)
    assert len({at(1, p) for p in range(50)}) > 40
    assert len({at(s, 10) for s in range(50)}) > 40


def test_without_a_seed_draws_differ() -> None:
    assert len({sample_row(torch.zeros(1000), 1.0, 0, 1.0, None, 3) for _ in range(20)}) > 1


def test_wrong_operands_are_refused() -> None:
    for logits, temperature, top_k, top_p in (
        (LOGITS, 0.0, 0, 1.0),
        (LOGITS, float("nan"), 0, 1.0),
        (LOGITS, 1.0, -1, 1.0),
        (LOGITS, 1.0, 0, 0.0),
        (LOGITS[None], 1.0, 0, 1.0),
    ):
        with pytest.raises(ValueError):
            sample_row(logits, temperature, top_k, top_p, 0, 0)
    with pytest.raises(ValueError):
        greedy(LOGITS)
