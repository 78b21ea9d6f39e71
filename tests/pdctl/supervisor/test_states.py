"""The table of states: every way there is, and that no other way is taken."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pdctl.supervisor.states import BRIEF, TRANSITIONS, Event, Machine, State
from tests.examples import examples

FLAPS, WINDOW = 3, 100.0
NEVER = float("inf")


@pytest.mark.parametrize("state", State)
def test_every_state_is_reached_and_left(state: State) -> None:
    assert state is State.UNKNOWN or state in TRANSITIONS.values()
    assert any(begin is state for begin, _ in TRANSITIONS)


def test_only_who_is_confirmed_is_acted_on() -> None:
    assert [begin for (begin, event) in TRANSITIONS if event is Event.BEGAN] == [State.ILL]


def test_who_was_given_up_comes_back_by_a_person_or_by_a_long_calm_alone() -> None:
    ways = {event for (begin, event) in TRANSITIONS if begin is State.PERSON}
    assert ways == {Event.CALM, Event.ATTENDED}


class Walk(RuleBasedStateMachine):
    """Any events in any order, beside a plain count of falls."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(FLAPS, WINDOW)
        self.now = 0.0
        self.well = False
        self.falls: list[float] = []
        self.suspect_since = NEVER

    @rule(seconds=st.floats(0, 30), event=st.sampled_from([e for e in Event if e is not Event.FLAPPED]))
    def happens(self, seconds: float, event: Event) -> None:
        self.now += seconds
        was = self.machine.state
        due = TRANSITIONS.get((was, event))
        expected = due or was
        if event is Event.ATTENDED:
            self.falls = []
        if due is not None:
            self.suspect_since = self.now if due is State.SUSPECT and self.well else NEVER
        elif event is Event.SICK and self.now - self.suspect_since >= BRIEF:
            self.suspect_since = NEVER
            self.falls = [f for f in (*self.falls, self.now) if self.now - f <= WINDOW]
            if len(self.falls) >= FLAPS:
                expected = State.FLAPPING
        assert self.machine.take(event, self.now) is (expected is not was)
        assert self.machine.state is expected
        if event is Event.WELL:
            self.well = True
        elif event in (Event.SICK, Event.BLINDED):
            self.well = False

    @rule(seconds=st.floats(0, 60))
    def nobody_looks(self, seconds: float) -> None:
        self.now += seconds
        self.machine.unseen()
        self.well = False

    @invariant()
    def calm_is_time_in_which_it_was_well(self) -> None:
        assert self.machine.calm(0.0, self.now) is self.well
        assert self.machine.since <= self.now


Walk.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestWalk = Walk.TestCase
