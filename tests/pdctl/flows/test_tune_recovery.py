"""What tune-timeout leaves behind when it is killed or applies a value, and what it needs to begin at all."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from pdctl.__main__ import main
from pdctl.errors import PdctlError, UnreachableError
from pdctl.exits import Exit
from pdctl.fleet.chain import IDLE, INFLIGHT, PREALLOC, TRANSFER
from pdctl.fleet.edit import set_value, set_values
from pdctl.fleet.profile import load_profile
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.kept import list_deployments
from pdctl.flows.load import run as load_run
from pdctl.flows.load.client import Answer
from pdctl.flows.recovery import record as recovery
from pdctl.flows.recovery.restore import restore
from pdctl.flows.recovery.timeouts import add_live, set_live
from pdctl.flows.tune import apply as tune_apply
from pdctl.flows.tune import run as tune_timeout
from pdctl.flows.tune.files import note_deployment
from pdctl.flows.tune.proof import Proof
from pdctl.flows.tune.report import Options
from pdctl.flows.waiting import until
from pdctl.units.envfile import parse_env
from tests.pdctl.flows.conftest import Bench

WAS, DRILL = 120.0, 3.0


def inflight(ctx: Context) -> float:
    return admin.timeouts(ctx, ctx.fleet.engine("prefill-0").url)["inflight"]


def killed_in_a_drill(bench: Bench) -> Context:
    """The record and the short value of a run that died before it could put anything back."""
    bench.deploy()
    ctx = bench.context()
    record = recovery.Record()
    add_live(ctx, record, "prefill-0", {"inflight": DRILL})
    recovery.write(ctx.fleet, record)
    set_live(ctx, "prefill-0", {"inflight": DRILL})
    return ctx


def test_the_value_of_a_killed_drill_is_put_back(bench: Bench) -> None:
    ctx = killed_in_a_drill(bench)
    assert inflight(ctx) == DRILL
    restored = restore(ctx)
    assert (restored.done, restored.left) == (["prefill-0: inflight back to 120 s"], [])
    assert inflight(ctx) == WAS and not recovery.path(ctx.fleet).exists()


def test_a_deploy_puts_back_first_what_a_killed_drill_has_set(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or an armed fault would take its canary."""
    ctx = killed_in_a_drill(bench)
    assert main(["--fleet", str(bench.path), "deploy", "--plan"]) == Exit.OK
    assert "has set on engines for the moment is put back first" in capsys.readouterr().out
    assert inflight(ctx) == DRILL
    assert main(["--fleet", str(bench.path), "deploy"]) == Exit.OK
    assert "put back first: prefill-0: inflight back to 120 s" in capsys.readouterr().err
    assert inflight(ctx) == WAS and not recovery.path(ctx.fleet).exists()


def test_a_value_that_was_set_since_is_left_alone(bench: Bench) -> None:
    ctx = killed_in_a_drill(bench)
    set_live(ctx, "prefill-0", {"inflight": 60.0})
    restored = restore(ctx)
    assert restored.done == []
    assert restored.left == ["prefill-0: inflight of 60 s was set since and is left alone"]
    assert inflight(ctx) == 60.0 and not recovery.path(ctx.fleet).exists()


def test_a_deploy_since_is_left_alone(bench: Bench) -> None:
    """Even one whose value is the drill's own: it came with another life, or it is the profile's."""
    ctx = killed_in_a_drill(bench)
    for env in (TRANSFER, PREALLOC):
        set_value(ctx.fleet.paths.profiles, "default", env, "2", "short", "me@here")
    set_value(ctx.fleet.paths.profiles, "default", INFLIGHT, f"{DRILL:g}", "on purpose", "me@here")
    bench.deploy()
    ctx.units("local").restart("prefill-0")
    until(lambda: "" if admin.state(ctx, ctx.fleet.engine("prefill-0").url) else "not up", 20.0)
    restored = restore(ctx)
    assert restored.done == []
    assert restored.left == ["prefill-0: inflight of 3 s came with a restart since and is left alone"]
    assert inflight(ctx) == DRILL


def test_a_profile_is_put_back_only_as_the_run_wrote_it(bench: Bench) -> None:
    ctx = bench.context()
    folder = ctx.fleet.paths.profiles
    before = (folder / "default.toml").read_text()
    edit = set_values(folder, "default", {"PD_QUEUE_TIMEOUT": ("200", "measured")}, "me@here")
    recovery.write(ctx.fleet, recovery.Record(files={str(edit.path): (edit.before, edit.after)}))
    assert restore(ctx).done == []  # killed before it wrote
    recovery.write(ctx.fleet, recovery.Record(files={str(edit.path): (edit.before, edit.after)}))
    edit.apply()
    assert restore(ctx).done == ["default.toml as it was"]
    assert (folder / "default.toml").read_text() == before
    recovery.write(ctx.fleet, recovery.Record(files={str(edit.path): (edit.before, edit.after)}))
    edit.apply()
    set_value(folder, "default", "PD_DRAIN_TIMEOUT", "20", "edited by hand", "me@here")
    edited = (folder / "default.toml").read_text()
    restored = restore(ctx)
    assert restored.left == ["default.toml was changed since and is left alone"]
    assert (folder / "default.toml").read_text() == edited


def test_a_deploy_does_not_bring_what_a_killed_run_has_half_done(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed between the profile and the rest: nothing of it was proved, and resume puts it back."""
    bench.deploy()
    ctx = bench.context()
    tuned = {env: (f"{value:g}", "measured") for env, value in WANTED.items()}
    edit = set_values(ctx.fleet.paths.profiles, "default", tuned, "me@here")
    recovery.write(ctx.fleet, recovery.Record(files={str(edit.path): (edit.before, edit.after)}))
    edit.apply()
    lives = bench.lives()
    for words in (["deploy", "--plan"], ["deploy", "--yes"]):
        assert main(["--fleet", str(bench.path), *words]) == Exit.USAGE
        said = capsys.readouterr().err
        assert "default.toml is as a `pdctl tune-timeout` wrote it" in said and "`pdctl resume`" in said
    assert bench.lives() == lives and installed(bench, "prefill-0")[INFLIGHT] == "120"
    assert main(["--fleet", str(bench.path), "resume"]) == Exit.OK
    assert edit.path.read_text() == edit.before and not bench.plan().plan.pending


def test_files_are_put_back_also_where_a_host_cannot_be_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = bench.context()
    edit = set_values(ctx.fleet.paths.profiles, "default", {"PD_QUEUE_TIMEOUT": ("200", "x")}, "me@here")
    record = recovery.Record(files={str(edit.path): (edit.before, edit.after)})
    record.envs = {"prefill-0": {"PD_QUEUE_TIMEOUT": ("300", "200")}}
    recovery.write(ctx.fleet, record)
    edit.apply()

    def silent(*args: object) -> None:
        raise UnreachableError("unreachable", "local does not answer.")

    monkeypatch.setattr("pdctl.flows.recovery.restore.read_env", silent)
    with pytest.raises(UnreachableError):
        restore(ctx)
    assert edit.path.read_text() == edit.before and recovery.path(ctx.fleet).exists()


def test_a_record_of_another_version_is_a_sentence(bench: Bench) -> None:
    ctx = bench.context()
    target = recovery.path(ctx.fleet)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text('{"schema": 1, "at": 1, "timeouts": {}, "faults": [], "files": {}}')
    with pytest.raises(PdctlError) as caught:
        restore(ctx)
    assert caught.value.code == "bad_recovery" and target.exists()


# applying ------------------------------------------------------------------------------------------------

WANTED = {TRANSFER: 37.0, PREALLOC: 37.0, INFLIGHT: 45.0, IDLE: 68.0}
REASONS = {env: f"measured, {env}" for env in WANTED}
PROOF = Proof("prefill-0", "decode-0", 3.0, 3.01, "drill-1", ())


def installed(bench: Bench, unit: str) -> dict[str, str]:
    return parse_env(Path(bench.root(), "env", f"{unit}.env").read_text())


def test_an_applied_value_survives_a_crash_and_leaves_a_deploy_nothing_to_do(bench: Bench) -> None:
    bench.deploy()
    ctx = bench.context()
    lives = bench.lives()
    tune_apply.apply(ctx, WANTED, REASONS)
    assert note_deployment(ctx, WANTED) == []
    assert bench.lives() == lives and not recovery.path(ctx.fleet).exists()
    assert bench.plan().plan.changes == 0
    made, _ = list_deployments(ctx)
    assert [d.what for d in made] == ["tune-timeout", "deploy"]
    assert installed(bench, "decode-0")[PREALLOC] == "37" and installed(bench, "router")[IDLE] == "68"
    values = load_profile(ctx.fleet.paths.profiles, "default").values
    assert {env: (values[env].value, values[env].reason) for env in WANTED} == {
        env: (f"{value:g}", REASONS[env]) for env, value in WANTED.items()
    }
    pid = lives["prefill-0"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    url = ctx.fleet.engine("prefill-0").url
    until(lambda: "" if bench.lives()["prefill-0"] not in (None, pid) else "the old life", 20.0)
    until(lambda: "" if admin.state(ctx, url) else "not up", 20.0)
    assert inflight(ctx) == 45.0


def test_only_what_was_applied_is_written_to_hosts(bench: Bench) -> None:
    """An edit of the fleet that nobody has deployed yet is not smuggled in."""
    bench.deploy()
    set_value(bench.fleet().paths.profiles, "default", "PD_QUEUE_TIMEOUT", "200", "later", "me@here")
    ctx = bench.context()
    tune_apply.apply(ctx, WANTED, REASONS)
    assert note_deployment(ctx, WANTED) == []
    assert installed(bench, "prefill-0")["PD_QUEUE_TIMEOUT"] == "300"
    left = [line for p in bench.plan().plan.pending for line in p.differences if "->" in line]
    assert left and all("PD_QUEUE_TIMEOUT" in line for line in left)


def test_a_unit_with_a_value_of_its_own_keeps_it(bench: Bench) -> None:
    name = f"port = {bench.fleet().engine('prefill-0').port}"
    bench.edit(name, f'{name}\nenv = {{ {INFLIGHT} = "130" }}')
    bench.deploy()
    ctx = bench.context()
    tune_apply.apply(ctx, WANTED, REASONS)
    assert note_deployment(ctx, WANTED) == []
    assert inflight(ctx) == 130.0 and installed(bench, "prefill-0")[INFLIGHT] == "130"
    assert "prefill-0 runs with 130 s" in tune_apply.vouch(ctx, [PROOF], "e.json", 45.0)
    assert not load_profile(ctx.fleet.paths.profiles, "default").values[INFLIGHT].is_verified


def test_what_is_not_in_force_is_not_vouched_for(bench: Bench) -> None:
    bench.deploy()
    ctx = bench.context()
    folder = ctx.fleet.paths.profiles
    tune_apply.need_in_force(ctx, "default", WAS)
    set_value(folder, "default", INFLIGHT, "130", "not deployed", "me@here")
    with pytest.raises(PdctlError) as caught:
        tune_apply.need_in_force(ctx, "default", 130.0)
    assert (caught.value.code, caught.value.exit) == ("not_in_force", Exit.FINDINGS)
    assert "prefill-0 runs with 120 s" in caught.value.message and "pdctl deploy" in caught.value.hint
    assert "changed to PD_PREFILL_INFLIGHT_TIMEOUT=130 meanwhile" in tune_apply.vouch(
        ctx, [PROOF], "e.json", WAS
    )
    assert "prefill-0 runs with 120 s" in tune_apply.vouch(ctx, [PROOF], "e.json", 130.0)
    assert not load_profile(folder, "default").values[INFLIGHT].is_verified
    bench.deploy()
    assert tune_apply.vouch(ctx, [PROOF], "e.json", 130.0) == ""
    stated = load_profile(folder, "default").values[INFLIGHT]
    assert stated.is_verified and stated.verified and stated.verified.units == ["prefill-0"]


# before anything is sent ---------------------------------------------------------------------------------


@pytest.fixture
def sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sent(*args: object) -> None:
        raise AssertionError("a request was sent")

    monkeypatch.setattr(load_run, "send", sent)


def refused(ctx: Context, **options: object) -> PdctlError:
    with pytest.raises(PdctlError) as caught:
        tune_timeout.run(ctx, Options(**options))  # type: ignore[arg-type]
    return caught.value


@pytest.mark.usefixtures("sends_nothing")
def test_a_fleet_that_is_down_is_refused_at_once_with_what_is_down(bench: Bench) -> None:
    error = refused(bench.context(), measure_only=True)
    assert (error.code, error.exit) == ("not_serving", Exit.UNREACHABLE)
    assert all(f"{name}: it does not answer" in error.message for name in ("prefill-0", "decode-0", "router"))
    bench.deploy()
    bench.context().units("local").stop("decode-0")
    error = refused(bench.context(), measure_only=True)
    assert "decode-0: it does not answer" in error.message and "prefill-0" not in error.message


@pytest.mark.usefixtures("sends_nothing")
def test_a_held_fleet_is_not_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.deploy()
    monkeypatch.setattr(admin, "get", lambda *args: {"admission": "held"})
    error = refused(bench.context(), measure_only=True)
    assert (error.code, error.exit) == ("not_serving", Exit.FINDINGS) and "pdctl resume" in error.hint


@pytest.mark.usefixtures("sends_nothing")
def test_the_operator_is_asked_before_anything_is_sent(bench: Bench) -> None:
    bench.edit("drill = false", "drill = true")
    bench.deploy()

    def declines(question: str) -> None:
        raise PdctlError("declined", question)

    asked = refused(bench.context(), apply=True, confirm=declines)
    assert asked.code == "declined" and asked.message.startswith("Load test, then stall one transfer")


def test_an_agent_backs_off_while_requests_fail(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def failing(client: object, target: object, request: object, answer: Answer) -> None:
        asked.append(time.monotonic())
        answer.fails("ConnectError")

    monkeypatch.setattr(load_run, "send", failing)
    shots = asyncio.run(load_run.drive(bench.context(), load_run.Shape(agents=2, seconds=2.0))).shots
    assert 4 <= len(shots) <= 16 and not any(shot.ok for shot in shots)
