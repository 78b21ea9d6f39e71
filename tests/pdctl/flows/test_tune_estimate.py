"""What samples say of the tail: a bound that holds as often as it says, and a fit."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.flows.tune.estimate import alike, fitted, needed, smallest, upper


def test_the_bound_is_clopper_and_pearsons() -> None:
    assert upper(59, 0) == pytest.approx(0.0495, abs=1e-4)
    assert upper(100, 3) == pytest.approx(0.0757, abs=1e-4)  # published tables of the one-sided 95 % limit
    assert upper(10, 10) == upper(0, 0) == 1.0


@given(st.floats(1e-5, 0.2))
def test_so_many_are_needed_and_no_fewer(target: float) -> None:
    n = needed(target)
    assert upper(n, 0) <= target * (1 + 1e-9)
    assert n == 1 or upper(n - 1, 0) > target


def test_the_target_of_one_in_ten_thousand_takes_thirty_thousand() -> None:
    assert needed(1e-4) == 29956 and needed(0.01) == 299


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=300), st.floats(0.005, 0.2))
def test_the_smallest_value_keeps_the_bound_and_the_next_smaller_one_does_not(
    values: list[float], target: float
) -> None:
    found = smallest(values, target)
    if found is None:
        assert upper(len(values), 0) >= target
        return
    value, bound = found
    assert value in values and bound < target
    lower = [v for v in values if v < value]
    if lower:
        assert upper(len(values), sum(v > max(lower) for v in values)) >= target


def test_the_bound_fails_no_more_often_than_it_says() -> None:
    """Exponential dwells: the true rate beyond the value is known, and exceeds the target in under 5 %."""
    draw = random.Random(6)
    wrong = 0
    for _ in range(400):
        found = smallest([draw.expovariate(1.0) for _ in range(400)], 0.02)
        assert found is not None
        wrong += math.exp(-found[0]) > 0.02
    # 5 % of 400 are 20; three standard deviations more are 33.
    assert wrong <= 33


def test_a_tail_is_found_again_and_not_made_of_too_few() -> None:
    draw = random.Random(6)
    values = [0.2 * (draw.random() ** -0.25 - 1.0) for _ in range(20000)]  # Pareto, shape 0.25
    tail = fitted(values)
    assert tail is not None and tail.shape == pytest.approx(0.25, abs=0.1)
    assert tail.beyond(0.6) == pytest.approx((0.6 / 0.2 + 1) ** -4, rel=0.3)
    assert fitted(values[:100]) is None and fitted([1.0] * 1000) is None


def test_waits_that_follow_one_another_are_told_from_independent_ones() -> None:
    draw = random.Random(6)
    series = [draw.random() for _ in range(500)]
    assert abs(alike(series)) < 0.15
    assert alike(sorted(series)) > 0.95 and alike([1.0] * 50) == 0.0
