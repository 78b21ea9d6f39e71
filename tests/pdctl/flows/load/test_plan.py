"""What a load asks: the same for the same seed, within its bounds, in the shares that were asked for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.errors import ConfigError
from pdctl.flows.load.plan import WORD, Agent, Shape, Turn, agents

SEEDS = st.integers(0, 2**40)
SHAPES = st.builds(
    Shape,
    agents=st.integers(1, 5),
    seconds=st.floats(1.0, 20.0),
    rounds=st.integers(1, 8),
    tokens=st.integers(1, 64),
    rate=st.sampled_from([0.0, 0.5, 3.0]),
    prompt=st.integers(1, 32),
    pause=st.floats(0.0, 5.0),
    abort=st.floats(0.0, 1.0),
    long=st.floats(0.0, 1.0),
    context=st.integers(512, 4096),
)


def planned(shape: Shape, seed: int) -> list[tuple[int, float, list[Turn]]]:
    return [(a.number, a.at, list(a.turns)) for a in itertools.islice(agents(shape, seed), 40)]


@given(SHAPES, SEEDS)
def test_the_same_seed_asks_the_same(shape: Shape, seed: int) -> None:
    first = planned(shape, seed)
    assert planned(shape, seed) == first
    # An agent's turns do not hang on how far the others came.
    again = {agent.number: agent for agent in itertools.islice(agents(shape, seed), 40)}
    assert [list(again[n].turns) for n in sorted(again, reverse=True)] == [t for _, _, t in first[::-1]]


@given(SHAPES, SEEDS)
def test_a_plan_stays_within_its_bounds(shape: Shape, seed: int) -> None:
    for _, at, turns in planned(shape, seed):
        assert 0.0 <= at < shape.seconds and 1 <= len(turns) <= shape.rounds
        for turn in turns:
            assert max(1, shape.tokens // 2) <= turn.tokens <= shape.tokens
            assert 0.0 <= turn.pause <= 5.0 * shape.pause
            assert turn.abort is None or 0 <= turn.abort < turn.tokens
            assert isinstance(turn.text, str)
            assert len(turn.text.split()) * WORD + turn.tokens <= shape.context


def test_another_seed_asks_something_else() -> None:
    shape = Shape(agents=3, seconds=10.0, rounds=4)
    plans = [planned(shape, seed) for seed in range(20)]
    assert all(one != other for one, other in itertools.combinations(plans, 2))


def test_shares_and_rates_are_about_what_was_asked_for() -> None:
    shape = Shape(agents=1, seconds=300.0, rounds=10, rate=2.0, abort=0.25, long=0.5, context=2048, pause=2.0)
    every: list[Agent] = list(agents(shape, 7))
    turns = [list(agent.turns) for agent in every]
    later = [turn for mine in turns for turn in mine[1:]]
    assert 500 < len(every) < 700
    assert [agent.at for agent in every] == sorted(agent.at for agent in every)
    assert 0.2 < sum(t.abort is not None for mine in turns for t in mine) / (10 * len(turns)) < 0.3
    assert 0.4 < sum(len(str(mine[0].text).split()) > 300 for mine in turns) / len(turns) < 0.6
    assert 1.8 < sum(turn.pause for turn in later) / len(later) < 2.2
    assert not any(len(str(turn.text).split()) > 100 for turn in later)


def test_shapes_that_cannot_be_are_refused_with_what_to_do() -> None:
    shape = Shape(agents=4, seconds=1.0)
    with pytest.raises(ConfigError, match="one round of this load up to"):
        replace(shape, context=100)
    with pytest.raises(ConfigError, match="4 agents at once are more than the 3 allowed"):
        replace(shape, most=3)
    assert replace(shape, most=3, rate=1.0).most == 3
