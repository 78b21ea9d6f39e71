"""The proposal says what its samples are worth, refuses too few, and keeps the chain in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.fleet.catalogue import known
from pdctl.fleet.chain import INFLIGHT, PREALLOC, chain_problems
from pdctl.flows.tune.proposal import FLOOR, chain, covered, histogram, propose, reasons


def test_too_few_samples_are_refused_with_the_number() -> None:
    proposal = propose([0.1] * 100, [1.0] * 12)
    assert proposal.value is None and "Only 12 transfers were seen with decode saturated" in proposal.reason


def test_decode_that_was_never_saturated_is_refused() -> None:
    proposal = propose([0.1] * 100, [0.2] * 100, was_saturated=False)
    assert proposal.value is None and "never saturated" in proposal.reason


def test_margin_over_the_longest_legitimate_wait() -> None:
    proposal = propose([0.1] * 60, [1.0] * 59 + [21.0])
    assert proposal.value == 65.0 and proposal.tail == 21.0
    assert "3 times the longest healthy dwell (21.00 s)" in proposal.reason


def test_the_floor_is_named_when_it_decides() -> None:
    proposal = propose([0.1] * 60, [0.5] * 60)
    assert proposal.value == FLOOR and "floor" in proposal.reason


def test_coverage_grows_with_samples() -> None:
    assert covered(0) == 0.0
    assert covered(59) == pytest.approx(0.95, abs=0.002)
    assert covered(299) == pytest.approx(0.99, abs=0.001)


@given(st.integers(1, 120), st.integers(5, 600))
def test_the_chain_stays_valid(start: int, target: int) -> None:
    defaults = {env: v.default for env, v in known().items()}
    current = defaults | chain(float(start * 5), defaults)
    assert chain_problems(current) == []
    values = current | chain(float(target), current)
    assert chain_problems(values) == []
    assert values[INFLIGHT] == target


def test_a_value_is_kept_with_its_own_reason() -> None:
    proposal = propose([0.1] * 60, [0.5] * 60)
    said = reasons(proposal)
    assert said[INFLIGHT] == proposal.reason and said[INFLIGHT].startswith("45 s: the floor")
    wanted = chain(45.0, {env: v.default for env, v in known().items()})
    assert wanted.keys() <= said.keys() and wanted[PREALLOC] == 37.0
    others = [said[env] for env in said if env != INFLIGHT]
    assert not any(reason.startswith("45 s") for reason in others)
    assert said[PREALLOC].startswith("5/6 of the inflight timeout of 45 s")


def test_failed_requests_are_named_instead_of_more_time() -> None:
    proposal = propose([0.1] * 3, [], trouble="load: 17 of 20 requests failed (ConnectError 17)")
    assert "17 of 20 requests failed (ConnectError 17): run `pdctl diagnose`" in proposal.reason
    assert "longer" not in proposal.reason


def test_histogram_marks_the_proposed_line() -> None:
    lines = histogram([0.005, 0.02, 0.02, 2.0], 60.0)
    assert lines[-1].endswith("<- 60 s proposed") and lines[-1].lstrip().startswith("<= 60 s")
    assert sum(int(line.split()[3]) for line in lines) == 4
