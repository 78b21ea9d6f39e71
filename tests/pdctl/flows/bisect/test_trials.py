"""Bisect on processes that start fast: what is restarted, what is put back, what is known at every end."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl import contracts
from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.flows.bisect import recovery, state
from pdctl.flows.bisect.differences import compare
from pdctl.flows.bisect.run import Options
from pdctl.flows.bisect.search import Rules
from tests.pdctl.flows.bisect.fleet import (
    FEW,
    VALUES,
    Fails,
    bisect,
    in_force,
    installed,
    write_noon,
)
from tests.pdctl.flows.conftest import Bench

STEADY = Rules(steady=True)


def old(bench: Bench) -> tuple[object, object]:
    return installed(bench), in_force(bench)


@pytest.mark.parametrize("culprit", ["KNOB_07", "PD_DECODE_TRANSFER_TIMEOUT"])
def test_one_value_of_twenty_is_found_within_what_the_plan_says(noon: Bench, culprit: str) -> None:
    write_noon(noon.folder / "profiles")
    was = old(noon)
    report = bisect(noon, Fails(noon, (culprit,)), Options(STEADY))
    assert report.answer is not None and report.answer.minimal
    (block,) = report.answer.found
    (found,) = report.of(block)
    assert (found.env, found.bad) == (culprit, VALUES[culprit][1])
    assert found.bad_at.endswith(f"noon.toml:{line_of(noon, 'noon', culprit)})")
    assert len(report.compared.differences) == 20
    assert report.tests <= report.forecast.tests == 8
    assert report.restarts == len(noon.restarted) <= report.forecast.restarts <= 8
    assert old(noon) == was and not recovery.path(noon.fleet()).exists()
    assert report.exit is Exit.OK and contracts.faults("bisect", report.document()) == []
    assert noon.plan().plan.changes == 0, "a deploy has nothing to do afterwards"


def line_of(bench: Bench, profile: str, env: str) -> int:
    lines = (bench.folder / "profiles" / f"{profile}.toml").read_text().splitlines()
    return 1 + lines.index(f"[values.{env}]")


def test_live_values_need_one_restart_and_its_way_back(noon: Bench) -> None:
    """Mixes of live values alone restart nothing: only the whole of noon does."""
    report = bisect(noon, Fails(noon, ("PD_QUEUE_TIMEOUT",)), Options(STEADY))
    assert report.exit is Exit.OK and noon.restarted == ["a", "a"]


@pytest.mark.slow
def test_two_values_that_only_together_flip_it(noon: Bench) -> None:
    was = old(noon)
    report = bisect(noon, Fails(noon, ("KNOB_01", "PD_ROUTER_IDLE_TIMEOUT")), Options(STEADY))
    assert report.answer is not None and report.answer.minimal
    names = {d.env for block in report.answer.found for d in report.of(block)}
    assert names == {"KNOB_01", "PD_ROUTER_IDLE_TIMEOUT"} and len(report.answer.found) == 2
    assert "together" in report.summary and old(noon) == was
    two = report.forecast.two
    assert two is not None and report.tests <= two.tests
    assert 2 <= report.restarts == len(noon.restarted) <= two.restarts


def test_a_flaky_check_is_repeated_and_its_bound_said(noon: Bench) -> None:
    report = bisect(noon, Fails(noon, ("PD_QUEUE_TIMEOUT",), rate=0.5))
    assert report.answer is not None and 0.0 < report.answer.bound <= 0.05
    assert [d.env for b in report.answer.found for d in report.of(b)] == ["PD_QUEUE_TIMEOUT"]
    assert f"at most {report.answer.bound:.2g}" in report.bound
    assert report.tests <= report.forecast.tests


@pytest.mark.slow
def test_what_noon_does_not_touch_is_set_as_good_has_it_and_comes_back(fresh: Bench) -> None:
    """The fleet runs neither: a value of its own profile is GOOD's during the tests."""
    path = fresh.folder / "profiles" / "own.toml"
    own = 'schema = 1\nname = "own"\nextends = "default"\n[values.OWN_KNOB]\nvalue = "7"\nside = "both"\n'
    path.write_text(own + 'reason = "mine"\n')
    fresh.edit('profile = "default"', 'profile = "own"')
    fresh.deploy()
    seen: list[bool] = []

    class Sees(Fails):
        def run(self, ctx):  # type: ignore[no-untyped-def]
            seen.append(any("OWN_KNOB" in unit for unit in installed(fresh).values()))
            return super().run(ctx)

    was = old(fresh)
    report = bisect(fresh, Sees(fresh, ("KNOB_01",)), Options(STEADY))
    assert report.exit is Exit.OK and not any(seen) and old(fresh) == was
    assert installed(fresh)["decode-0"]["OWN_KNOB"] == "7"


@pytest.mark.slow
def test_a_value_set_live_by_hand_comes_back_though_the_file_says_another(fresh: Bench) -> None:
    ctx = fresh.context()
    recovery.put_live(ctx, ctx.fleet.unit("decode-0"), {"transfer": 77.0})
    was = old(fresh)
    assert in_force(fresh)["decode-0"]["PD_DECODE_TRANSFER_TIMEOUT"] == "77"
    bisect(fresh, Fails(fresh, ("KNOB_01",)), Options(STEADY))
    assert old(fresh) == was


# ends that are none -------------------------------------------------------------------------------------


def test_a_profile_that_does_not_start_is_searched_too(fresh: Bench) -> None:
    """BAD does not start, and so do mixes with the value that is to blame."""
    fresh.behave("prefill-0", "exit_with=KNOB_01")
    report = bisect(fresh, Fails(fresh, ("KNOB_14",)), Options(STEADY))
    assert report.answer is not None
    assert [d.env for b in report.answer.found for d in report.of(b)] == ["KNOB_01"]
    assert report.ends().endswith("noon did not start.")


def test_no_difference_and_a_fleet_that_does_not_serve_are_sentences(fresh: Bench) -> None:
    with pytest.raises(ConfigError) as caught:
        compare(fresh.fleet(), "default", "default")
    assert caught.value.code == "no_difference"
    fresh.context().units("local").stop("decode-0")
    with pytest.raises(PdctlError) as down:
        bisect(fresh, Fails(fresh, ()))
    assert down.value.code == "not_serving" and fresh.restarted == []


def test_a_check_that_good_fails_ends_it_at_once(noon: Bench) -> None:
    was = old(noon)
    report = bisect(noon, Fails(noon, ()))
    assert (report.exit, noon.restarted) == (Exit.FINDINGS, []) and "must pass" in report.summary
    assert old(noon) == was


def test_a_bad_that_passes_says_how_seldom_it_may_fail(noon: Bench) -> None:
    report = bisect(noon, Fails(noon, ("KNOB_01",), rate=0.0), Options(Rules(patience=5)))
    assert report.exit is Exit.FINDINGS and "noon passed all of 5 runs" in report.summary
    assert "45%" in report.summary


# budgets and going on -----------------------------------------------------------------------------------


def test_a_spent_budget_says_what_is_known_and_goes_on_later(noon: Bench) -> None:
    was = old(noon)
    check = Fails(noon, ("KNOB_01",))
    first = bisect(noon, check, Options(STEADY, max_restarts=2))
    assert first.answer is None and first.exit is Exit.FINDINGS
    assert first.restarts <= 2 and "KNOB_01" in first.summary
    assert first.next.startswith("pdctl resume ") and old(noon) == was
    runs, tested = check.runs, [t.mix for t in first.trials]
    assert first.state.restarts == first.restarts == len(noon.restarted) > 0
    second = bisect(noon, check, Options(STEADY, resume=True))
    assert second.state.restarts == len(noon.restarted) == first.restarts + second.restarts
    assert second.answer is not None and second.exit is Exit.OK and old(noon) == was
    assert check.runs <= first.forecast.tests and [t.mix for t in second.trials[:runs]] == tested
    assert not state.path(noon.fleet()).exists()


def test_a_budget_that_no_test_fits_into_is_refused_before_anything_is_tried(noon: Bench) -> None:
    """There and back; to resume it would be for ever in vain."""
    for budget in (0, 1):
        with pytest.raises(ConfigError) as few:
            bisect(noon, Fails(noon, ("KNOB_01",)), Options(STEADY, max_restarts=budget))
        assert few.value.code == "few_restarts" and few.value.hint.startswith("Allow 2 or more")
    assert noon.restarted == [] and not state.path(noon.fleet()).exists()


def test_time_that_is_spent_before_the_first_test_changes_nothing(noon: Bench) -> None:
    report = bisect(noon, Fails(noon, ("KNOB_01",)), Options(STEADY, max_seconds=0.0))
    assert report.answer is None and report.trials == [] and report.restarts == 0
    assert "Among the 6 of 6 that are left" in report.summary


def test_only_the_same_bisect_is_resumed(noon: Bench) -> None:
    with pytest.raises(ConfigError) as none:
        bisect(noon, Fails(noon, ()), Options(resume=True))
    assert none.value.code == "no_bisect"
    bisect(noon, Fails(noon, ("KNOB_01",)), Options(STEADY, max_seconds=0.0))
    write_noon(noon.folder / "profiles", FEW, KNOB_02="2")
    with pytest.raises(ConfigError) as other:
        bisect(noon, Fails(noon, ("KNOB_01",)), Options(STEADY, resume=True))
    assert other.value.code == "other_bisect" and any("KNOB_02" in line for line in other.value.details)


def test_somebody_elses_change_meanwhile_is_left_alone(fresh: Bench) -> None:
    class Meddles(Fails):
        def run(self, ctx):  # type: ignore[no-untyped-def]
            recovery.put_live(ctx, ctx.fleet.unit("router"), {"router_idle": 222.0})
            return super().run(ctx)

    report = bisect(fresh, Meddles(fresh, ()), Options(STEADY))
    assert any("router_idle of 222" in line for line in report.left_alone)
    assert in_force(fresh)["router"]["PD_ROUTER_IDLE_TIMEOUT"] == "222"


def test_an_interrupt_puts_everything_back(noon: Bench) -> None:
    class Stops(Fails):
        def run(self, ctx):  # type: ignore[no-untyped-def]
            if self.runs == 2:
                raise KeyboardInterrupt
            return super().run(ctx)

    was = old(noon)
    with pytest.raises(PdctlError, match="Interrupted") as stopped:
        bisect(noon, Stops(noon, ("KNOB_01",)), Options(STEADY))
    assert stopped.value.exit is Exit.INTERRUPTED
    assert old(noon) == was and not recovery.path(noon.fleet()).exists()
    assert len(state.resumed(noon.fleet(), kept(noon)).trials) == 2


def kept(bench: Bench) -> state.State:
    compared = compare(bench.fleet(), "default", "noon")
    return state.begin(compared, "a test's", STEADY.error, STEADY.steady)


def test_declining_the_plan_changes_nothing(noon: Bench) -> None:
    with pytest.raises(PdctlError, match="Interrupted"):
        bisect(noon, Fails(noon, ("KNOB_01",)), Options(STEADY), _decline)
    assert not recovery.path(noon.fleet()).exists() and not state.path(noon.fleet()).exists()


def _decline(report: object) -> None:
    raise KeyboardInterrupt


def test_a_damaged_record_is_a_sentence(noon: Bench) -> None:
    file: Path = recovery.path(noon.fleet())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{")
    with pytest.raises(PdctlError) as caught:
        bisect(noon, Fails(noon, ()))
    assert caught.value.code == "bad_recovery" and file.exists()
    file.unlink()
