"""The proposal says what its samples are worth, refuses too few, and keeps the chain in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdctl.fleet.catalogue import known
from pdctl.fleet.chain import IDLE, INFLIGHT, PREALLOC, QUEUE, TOTAL, chain_problems
from pdctl.flows.tune.proposal import FLOOR, Wanted, chain, histogram, propose, reasons

LAX = Wanted(target=0.06)


def test_too_few_samples_are_refused_with_how_many_it_takes_and_how_to_get_them() -> None:
    proposal = propose({"load": [0.1] * 100, "saturated": [1.0] * 60}, pace=3.0)
    assert proposal.value is None and "Only 60 transfers were seen with decode saturated" in proposal.reason
    assert "a rate below 0.01 takes 299, 100 s at this fleet's pace" in proposal.reason
    assert "--limit" in proposal.reason and "--target 0.049" in proposal.reason
    again = propose({"load": [0.1] * 100, "saturated": [1.0] * 60}, Wanted(target=0.049))
    assert again.value == FLOOR
    few = propose({"load": [0.1] * 7, "saturated": [1.0] * 600})
    assert few.value is None and "Only 7 transfers were seen under load; 30 are needed" in few.reason


def test_decode_that_was_never_saturated_is_refused() -> None:
    proposal = propose({"load": [0.1] * 100, "saturated": [0.2] * 100}, LAX, was_saturated=False)
    assert proposal.value is None and "never saturated" in proposal.reason


def test_margin_over_the_longest_legitimate_wait_of_any_condition() -> None:
    proposal = propose({"load": [0.1] * 60, "saturated": [1.0] * 60, "cold": [21.0]}, LAX)
    assert proposal.value == 65.0 and proposal.longest == 21.0
    assert "3 times the longest healthy dwell (21.00 s)" in proposal.reason


def test_a_wait_on_decode_is_not_cut_by_its_own_deadline() -> None:
    dwells = {"load": [0.1] * 60, "saturated": [0.5] * 60}
    proposal = propose(dwells, LAX, waited=20.0)
    assert proposal.value == 75.0 and "wait on decode (20.0 s)" in proposal.reason
    below = chain(75.0, {env: v.default for env, v in known().items()})[PREALLOC]
    assert below >= 3.0 * 20.0


def test_many_samples_bear_out_a_value_below_the_longest() -> None:
    proposal = propose({"load": [0.1] * 60, "saturated": [0.5] * 990 + [2.0] * 10}, Wanted(target=0.02))
    assert proposal.least == 0.5 and proposal.rate < 0.02 and proposal.longest == 2.0


def test_the_floor_is_named_when_it_decides_and_can_be_lowered() -> None:
    dwells = {"load": [0.1] * 60, "saturated": [0.5] * 60}
    proposal = propose(dwells, LAX)
    assert proposal.value == FLOOR and "floor" in proposal.reason
    assert "the value is 90 times that" in proposal.reason
    assert propose(dwells, Wanted(target=0.06, floor=2.0, margin=10.0)).value == 5.0


def test_waits_that_depend_on_one_another_are_cautioned() -> None:
    rising = [n / 100 for n in range(100)]
    assert "resemble each other" in propose({"load": rising, "saturated": rising}, LAX).cautions[0]


@given(st.integers(1, 120), st.integers(5, 600))
def test_the_chain_stays_valid(start: int, target: int) -> None:
    defaults = {env: v.default for env, v in known().items()}
    current = defaults | chain(float(start * 5), defaults)
    assert chain_problems(current) == []
    values = current | chain(float(target), current)
    assert chain_problems(values) == []
    assert values[INFLIGHT] == target


def test_a_value_is_kept_with_its_own_reason() -> None:
    proposal = propose({"load": [0.1] * 60, "saturated": [0.5] * 60}, LAX)
    said = reasons(proposal)
    assert said[INFLIGHT] == proposal.reason and said[INFLIGHT].startswith("45 s: the floor")
    wanted = chain(45.0, {env: v.default for env, v in known().items()})
    assert wanted.keys() <= said.keys() and wanted[PREALLOC] == 37.0
    others = [said[env] for env in said if env != INFLIGHT]
    assert not any(reason.startswith("45 s") for reason in others)
    assert said[PREALLOC].startswith("5/6 of the inflight timeout of 45 s")


def test_failed_requests_are_named_instead_of_more_time() -> None:
    proposal = propose({"load": [0.1] * 3}, trouble="load: 17 of 20 requests failed (ConnectError 17)")
    assert "17 of 20 requests failed (ConnectError 17): run `pdctl diagnose`" in proposal.reason
    assert "longer" not in proposal.reason


def test_deadlines_that_cut_the_measurement_are_named_with_what_to_do() -> None:
    trouble = "saturated: 8 of 63 requests failed (prealloc_timeout 8)"
    proposal = propose({"load": [0.1] * 3}, trouble=trouble, cut_by={PREALLOC, IDLE})
    assert f"longer than {PREALLOC} and {IDLE} allow: raise them" in proposal.reason
    alone = propose({"load": [0.1] * 3}, trouble=trouble, cut_by={PREALLOC})
    assert f"longer than {PREALLOC} allows: raise it for" in alone.reason
    assert "diagnose" not in proposal.reason
    enough = propose({"load": [0.1] * 60, "saturated": [0.5] * 60}, LAX, trouble=trouble, cut_by={PREALLOC})
    assert enough.value == FLOOR and enough.cautions[-1].startswith(trouble)


def test_who_waits_for_a_turn_on_prefill_is_not_cut_by_the_chain() -> None:
    defaults = {env: v.default for env, v in known().items()}
    assert not {IDLE, QUEUE} & chain(45.0, defaults, 20.0).keys()
    wanted = chain(45.0, defaults, 360.0)
    assert wanted[QUEUE] == 360.0 and not {IDLE, TOTAL} & wanted.keys()
    assert chain(45.0, defaults, 700.0)[TOTAL] == 2800.0


def test_histogram_marks_the_proposed_line() -> None:
    lines = histogram([0.005, 0.02, 0.02, 2.0], 60.0)
    assert lines[-1].endswith("<- 60 s proposed") and lines[-1].lstrip().startswith("<= 60 s")
    assert sum(int(line.split()[3]) for line in lines) == 4
