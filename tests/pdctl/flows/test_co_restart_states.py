"""The machine: one way forward, a failure holds, HOLD alone leaves nothing changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.exits import Exit
from pdctl.flows.co_restart.report import CellReport, CoRestartReport
from pdctl.flows.co_restart.states import (
    DEADLINES,
    FINAL,
    ORDER,
    Event,
    Machine,
    Stage,
    advance,
    next_command,
    truth,
)


def test_the_order_is_hold_drain_stop_prove_start_link_canary_resume() -> None:
    machine, walked = Machine(), [Machine().stage]
    while not machine.final:
        machine = advance(machine, Event.PASSED)
        walked.append(machine.stage)
    assert tuple(walked) == ORDER and machine.stage is Stage.DONE
    assert next_command(machine, "a") == ""


def test_every_stage_that_acts_has_a_deadline() -> None:
    assert set(DEADLINES) == set(ORDER) - {Stage.DONE}
    assert all(seconds > 0 for seconds in DEADLINES.values())


@pytest.mark.parametrize("event", [Event.FAILED, Event.EXPIRED, Event.INTERRUPTED])
def test_a_failed_hold_changes_nothing_and_any_other_stage_holds(event: Event) -> None:
    assert advance(Machine(), event, "why").stage is Stage.UNTOUCHED
    assert next_command(advance(Machine(), Event.FAILED), "a") == "pdctl diagnose"
    machine = Machine()
    for stage in ORDER[:-1]:
        if stage is not Stage.HOLD and (stage, event) != (Stage.DRAIN, Event.INTERRUPTED):
            held = advance(machine, event, "why")
            assert (held.stage, held.at, held.reason) == (Stage.HELD, stage, "why")
            assert any("Admissions are held" in line for line in truth(held))
            assert next_command(held, "a").startswith("pdctl ")
        machine = advance(machine, Event.PASSED)


def test_an_interrupt_before_anything_was_stopped_changes_nothing() -> None:
    machine = Machine()
    for stage in ORDER[:3]:
        assert machine.stage is stage
        ended = advance(machine, Event.INTERRUPTED, stopping=False)
        assert (ended.stage, truth(ended)) == (Stage.UNTOUCHED, ["Nothing was stopped."])
        assert next_command(ended, "a") == "pdctl restart --co a"
        machine = advance(machine, Event.PASSED)
    assert advance(machine, Event.INTERRUPTED).stage is Stage.HELD


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (Stage.DRAIN, "The engines run their old lives and were being drained."),
        (Stage.STOP_DECODE, "Prefills are drained and run their old lives; decodes were being stopped."),
        (Stage.STOP_PREFILL, "Decodes are stopped; prefills were being stopped."),
        (Stage.PROVE, "Every engine of the cell was stopped."),
        (Stage.START_PREFILL, "Every engine of the cell was stopped; prefills were being started."),
        (Stage.START_DECODE, "Prefills were started anew; decodes were being started."),
        (Stage.CANARY, "Prefills and decodes were started anew."),
    ],
)
def test_an_engine_is_not_said_to_live_on_once_it_was_told_to_stop(at: Stage, said: str) -> None:
    machine = Machine()
    while machine.stage is not at:
        machine = advance(machine, Event.PASSED)
    assert truth(advance(machine, Event.FAILED))[1] == said


def test_a_failed_resume_asks_for_resume() -> None:
    machine = Machine()
    while machine.stage is not Stage.RESUME:
        machine = advance(machine, Event.PASSED)
    assert next_command(advance(machine, Event.EXPIRED), "a") == "pdctl resume"


@given(st.lists(st.sampled_from(list(Event)), max_size=20))
def test_no_path_skips_a_stage_or_leaves_an_end(events: list[Event]) -> None:
    machine = Machine()
    for event in events:
        if machine.final:
            with pytest.raises(ValueError):
                advance(machine, event)
            break
        machine = advance(machine, event)
        assert machine.passed == ORDER[: len(machine.passed)]
        if machine.stage is Stage.DONE:
            assert machine.passed == ORDER[:-1]
    assert machine.stage in (*ORDER, *FINAL)


def test_a_restarted_cell_that_the_router_was_never_told_of_is_not_ok() -> None:
    machine = Machine()
    while not machine.final:
        machine = advance(machine, Event.PASSED)
    cell = CellReport("a", machine, {}, 1.0, (), (), (), (), (), "", True, ("p",))
    assert CoRestartReport((cell,)).exit is Exit.FINDINGS
    assert "sends nothing there" in truth(machine, True, True, told=False)[0]
    assert next_command(machine, "a", True, told=False) == "pdctl deploy"


@pytest.mark.parametrize(("routed", "code"), [(True, Exit.OK), (False, Exit.FINDINGS)])
def test_a_restarted_cell_that_no_router_serves_is_not_ok(routed: bool, code: Exit) -> None:
    machine = Machine()
    while not machine.final:
        machine = advance(machine, Event.PASSED)
    cell = CellReport("a", machine, {}, 1.0, (), (), (), (), (), "", routed)
    report = CoRestartReport((cell,))
    assert (report.exit, report.ok, report.done) == (code, routed, True)
    assert ("admissions are open" in truth(machine, True, routed)[0]) is routed
    assert next_command(machine, "a", routed) == ("" if routed else "pdctl deploy")
