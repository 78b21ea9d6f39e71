"""tune-timeout keeps its numbers in its run; interrupted, it says what stands then: nothing or all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.flows import admin
from pdctl.flows.recovery import record
from pdctl.flows.recovery.restore import Restored, restore
from pdctl.flows.tune import apply as tune_apply
from pdctl.flows.tune import run as tune
from pdctl.flows.tune.measure import Phase
from pdctl.remote.journal_read import list_runs
from pdctl.remote.lock import FleetLock
from tests.pdctl.flows.conftest import Bench
from tests.pdctl.flows.tune_killed import SHORT, measured, proved

WORDS = ("tune-timeout", "--apply", "--yes", "--target", "0.06")
OLD = 120.0


@pytest.fixture
def tuned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A fleet of doubles that serves; what is measured and seen to fire is given, for they move no KV."""
    bench.edit("drill = false", "drill = true")
    bench.deploy()
    monkeypatch.setattr(tune, "measure", measured)
    monkeypatch.setattr(tune, "prove", proved)
    return bench


def interrupted(act: Callable[..., Any] | None = None, calls: int = 1) -> Callable[..., Any]:
    """Ctrl-C behind the call of this number."""
    made = 0

    def acts(*args: Any, **more: Any) -> Any:
        nonlocal made
        made += 1
        done = act(*args, **more) if act else None
        if made == calls:
            raise KeyboardInterrupt
        return done

    return acts


def asked(bench: Bench, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["--fleet", str(bench.path), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def inflight(bench: Bench) -> float:
    ctx = bench.context()
    return admin.timeouts(ctx, ctx.fleet.engine("prefill-0").url)["inflight"]


def test_its_run_has_what_was_measured_proposed_seen_to_fire_and_changed(
    tuned: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dwells = tuple(n / 100.0 for n in range(1, 121))
    monkeypatch.setattr(tune, "measure", lambda *_: [*measured(tuned.context(), ())[:1], saturated(dwells)])
    capsys.readouterr()
    assert main(["--fleet", str(tuned.path), *WORDS]) == 0
    evidence = capsys.readouterr().out.rpartition("Evidence: ")[2].strip()
    run = list_runs(tuned.fleet().paths.journal, 1)[0].id
    assert main(["--fleet", str(tuned.path), "history", run]) == 0
    said = capsys.readouterr().out
    assert "pdctl tune-timeout --apply --yes --target 0.06  done" in said
    assert "note: dwell, load: transfers 60, longest_s 0.1\n" in said  # too few for a 99th percentile
    assert "note: dwell, saturated: transfers 120, p99_s 1.19, longest_s 1.2\n" in said
    assert "note: proposed: value_s 45.0, was_s 120.0, reason 45 s: the floor of 45 s" in said
    assert (
        "note: watchdog PD_PREFILL_INFLIGHT_TIMEOUT of prefill-0: test_value_s 3.0, fired_after_s 3.0" in said
    )
    assert "of prefill-0 after applying: " in said
    assert "note: applied: " in said and "PD_PREFILL_INFLIGHT_TIMEOUT 120 -> 45" in said
    assert f"note: tune-timeout: ok True, applied True, verified True, evidence {evidence}\n" in said


def saturated(dwells: tuple[float, ...]) -> Phase:
    return Phase("saturated", 1.0, dwells, {}, 9, ())


def test_before_the_commit_everything_is_as_it_was_and_it_says_so(
    tuned: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for room, name, calls in (
        (tune, "measure", 1),
        (tune, "prove", 1),
        (tune_apply, "change_env", 2),
        (tune_apply, "set_live", 2),
    ):
        with monkeypatch.context() as at:
            at.setattr(room, name, interrupted(getattr(room, name), calls))
            code, said = asked(tuned, capsys, *WORDS)
        assert code == said["exit"] == Exit.INTERRUPTED and not said["ok"] and not said["applied"], name
        assert said["stopped"] == "engines and profile default have the values that they had before"
        assert inflight(tuned) == OLD and not record.path(tuned.fleet()).exists()
        assert (said["proposal"] is None) == (name == "measure")
    # Ctrl-C in a drill, and once more while it is undone: the short value stands.
    with monkeypatch.context() as at:
        at.setattr(tune, "prove", interrupted(proved))
        at.setattr(tune, "restore", interrupted(lambda ctx: Restored(), 2))
        assert main(["--fleet", str(tuned.path), *WORDS]) == Exit.INTERRUPTED
    shown = capsys.readouterr()
    assert "not all put back" in shown.err and "`pdctl resume` puts it back" in shown.err
    assert inflight(tuned) == SHORT
    restore(tuned.context())
    assert inflight(tuned) == OLD


def test_behind_the_commit_it_says_that_the_change_is_whole_and_what_is_left(
    tuned: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the fleet's lock is given back, behind the evidence, and in the drill behind applying."""
    with monkeypatch.context() as at:
        at.setattr(FleetLock, "release", interrupted(FleetLock.release))
        assert main(["--fleet", str(tuned.path), *WORDS]) == Exit.INTERRUPTED
    shown = capsys.readouterr()
    assert "PD_PREFILL_INFLIGHT_TIMEOUT: 120 -> 45 s" in shown.out and "Applied to profile" in shown.out
    assert "which were seen to fire; nothing is left to do." in shown.out
    assert "pdctl resume" not in shown.out + shown.err and inflight(tuned) == 45.0
    stands = "engines and profile default have all of the new values"
    for name, act, calls, value, left in (
        ("vouch", tune.vouch, 1, 50.0, ", which were seen to fire; nothing is left to do"),
        ("prove", proved, 2, 55.0, "; `pdctl tune-timeout --verify` sees them fire"),
    ):
        with monkeypatch.context() as at:
            at.setattr(tune, name, interrupted(act, calls))
            code, said = asked(tuned, capsys, *WORDS, "--floor", f"{value:g}")
        assert code == said["exit"] == Exit.INTERRUPTED and said["applied"]
        assert said["stopped"] == stands + left and said["verified"] == (name == "vouch")
        assert inflight(tuned) == value and not record.path(tuned.fleet()).exists()
        assert list_runs(tuned.fleet().paths.journal, 1)[0].state == "interrupted"
