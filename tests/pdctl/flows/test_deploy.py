"""A deploy does what its plan says, once; a second one changes and restarts nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.edit import set_value
from pdctl.flows.deploy.gate import prove_started, unready
from pdctl.flows.down import down
from pdctl.flows.live import set_live
from pdctl.flows.logs import follow
from pdctl.flows.recovery import record as recovery
from pdctl.flows.recovery.restore import restore
from pdctl.flows.status import collect_status
from pdctl.flows.waiting import until
from pdctl.procs import start_time
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import list_runs
from tests.pdctl.flows.conftest import WAIT, Bench

Fails = Callable[[Bench], PdctlError]


def ids(made) -> list[str]:
    return [p.step.id for p in made.plan.pending if not p.step.gate]


def test_the_second_deploy_changes_nothing_and_restarts_nothing(bench: Bench) -> None:
    plan = bench.plan().plan
    assert not (bench.folder / ".pdctl" / "host").exists(), "planning wrote something"
    first = bench.deploy()
    assert first.plan.document() == plan.document()
    starts = [id for id in ids(first) if "/start/" in id]
    assert starts == ["local/start/prefill-0", "local/start/decode-0", "local/start/router"]
    lives = bench.lives()
    assert set(lives) == {"prefill-0", "decode-0", "router"} and all(lives.values())
    assert unready(bench.context()) == {}
    second = bench.deploy()
    assert (second.plan.changes, second.plan.pending) == (0, ())
    assert bench.lives() == lives
    assert [(r.command, r.state) for r in list_runs(bench.fleet().paths.journal)] == [("deploy", "done")]


def test_files_with_secrets_are_private_and_tokens_stay_out_of_sight(bench: Bench) -> None:
    made = bench.deploy()
    root = Path(bench.fleet().host_paths("local").root)
    token = bench.fleet().paths.token.read_text().strip()
    for name in ("env/prefill-0.env", "env/fleet-token", "units/router.json"):
        assert (root / name).stat().st_mode & 0o777 == 0o600
    assert (root / "env" / "fleet-token").read_text() == token
    assert not (root / "env" / "drill-token").exists()
    assert token not in json.dumps(made.plan.document())
    assert token.encode() not in bench.fleet().paths.journal.read_bytes()
    for pid in bench.lives().values():
        assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_changed_flag_restarts_its_cell_together_and_not_the_router(bench: Bench) -> None:
    bench.deploy()
    before = bench.lives()
    bench.edit('role = "decode"', 'role = "decode"\npages = 64')
    made = bench.deploy()
    assert ids(made) == ["local/unit/decode-0", "co-restart/a"]
    assert made.plan.pending[0].differences == ("argv: (nothing) -> --pages 64",)
    bench.edit("pages = 64", "pages = 65")
    assert bench.plan().plan.pending[0].differences == ("argv: --pages 64 -> --pages 65",)
    bench.edit("pages = 65", "pages = 64")
    after = bench.lives()
    assert bench.restarted == ["a"]
    assert after["router"] == before["router"]
    assert after["decode-0"] != before["decode-0"] and after["prefill-0"] != before["prefill-0"]
    assert bench.deploy().plan.changes == 0


def test_a_live_timeout_is_set_without_a_restart(bench: Bench) -> None:
    bench.deploy()
    before = bench.lives()
    inflight = "[values.PD_PREFILL_INFLIGHT_TIMEOUT]\nvalue = "
    bench.edit(f'{inflight}"120"', f'{inflight}"110"', "profiles/default.toml")
    made = bench.deploy()
    assert ids(made) == ["local/env/prefill-0", "local/timeouts/prefill-0"]
    assert made.plan.pending[0].differences == ("PD_PREFILL_INFLIGHT_TIMEOUT: 120 -> 110",)
    assert (bench.lives(), bench.restarted) == (before, [])
    assert bench.deploy().plan.changes == 0


def test_a_value_read_at_start_restarts_the_cell(bench: Bench) -> None:
    bench.deploy()
    bench.edit(
        'side = "both"\nreason = "A rank may',
        'side = "both"\nreason = "Any rank may',
        "profiles/default.toml",
    )
    assert bench.deploy().plan.changes == 0, "a reason is not an input"
    bench.edit(
        '[values.PD_RANK_TIMEOUT]\nvalue = "20"',
        '[values.PD_RANK_TIMEOUT]\nvalue = "25"',
        "profiles/default.toml",
    )
    bench.deploy()
    assert bench.restarted == ["a"]


def test_a_unit_that_left_the_fleet_file_is_stopped_and_removed(bench: Bench) -> None:
    bench.edit('name = "router"', 'name = "front"')
    bench.deploy()
    old = bench.lives()["front"]
    bench.edit('name = "front"', 'name = "router"')
    made = bench.deploy()
    assert "local/remove/front" in ids(made)
    assert "front" not in bench.lives()
    assert old is not None and start_time(old) is None


def test_a_killed_engine_whose_keeper_restarts_it_needs_no_deploy(bench: Bench) -> None:
    bench.deploy()
    pid = bench.lives()["decode-0"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while unready(bench.context()):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert bench.deploy().plan.changes == 0


def test_what_was_started_from_a_hand_s_files_is_restarted(bench: Bench) -> None:
    """An env file that was edited is mended; a process is restarted only where it was started from that."""
    bench.deploy()
    lives, path = bench.lives(), bench.root() / "env" / "decode-0.env"
    path.write_text(path.read_text() + 'UCX_TLS="tcp"\n')
    made = bench.deploy()
    assert ids(made) == ["local/env/decode-0"] and bench.lives() == lives
    path.write_text(path.read_text() + 'UCX_TLS="tcp"\n')
    os.kill(lives["decode-0"] or 0, signal.SIGKILL)
    until(lambda: "not yet" if bench.lives()["decode-0"] in (None, lives["decode-0"]) else "", 30.0)
    made = bench.plan()
    assert ids(made) == ["local/env/decode-0", "co-restart/a"]
    why = "decode-0 was started from what somebody else wrote: its env file"
    assert next(p for p in made.plan.pending if p.step.id == "co-restart/a").differences == (why,)
    bench.apply(made)
    pid = bench.lives()["decode-0"]
    assert b"UCX_TLS" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert bench.restarted == ["a"] and bench.deploy().plan.changes == 0


def test_an_orphan_is_told_and_taken_back(bench: Bench) -> None:
    bench.deploy()
    before = bench.context().units("local").status()["decode-0"]
    assert before.keeper_pid is not None
    os.kill(before.keeper_pid, signal.SIGKILL)
    assert not collect_status(bench.context()).healthy
    made = bench.deploy()
    assert [p.step.describe for p in made.plan.pending if not p.step.gate] == ["restart decode-0"]
    after = bench.context().units("local").status()["decode-0"]
    assert after.state == "active" and after.pid != before.pid
    assert before.pid is not None and start_time(before.pid) is None


def test_a_value_set_live_reaches_the_engines_that_read_it(bench: Bench) -> None:
    bench.deploy()
    before = bench.lives()
    set_value(bench.fleet().paths.profiles, "default", "PD_QUEUE_TIMEOUT", "200", "short queues", "me@here")
    with bench.context() as ctx:
        assert set_live(ctx, "default", "PD_QUEUE_TIMEOUT") == {"prefill-0": "", "decode-0": ""}
        assert set_live(ctx, "production", "PD_QUEUE_TIMEOUT") == {}
        with pytest.raises(ConfigError, match="PD_RANK_TIMEOUT is read at start"):
            set_live(ctx, "default", "PD_RANK_TIMEOUT")
    assert ids(bench.plan()) == ["local/env/prefill-0", "local/env/decode-0"], "only the files lag behind"
    assert bench.lives() == before


def test_logs_are_followed_over_a_rotation(bench: Bench) -> None:
    bench.deploy()
    ctx = bench.context()
    unit = bench.fleet().unit("prefill-0")
    path = Path(bench.fleet().host_paths("local").log("prefill-0"))
    text = follow(ctx, unit)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, text)
        while not coming.done():
            with path.open("a") as file:
                file.write("a longer line\n")
            time.sleep(0.05)
        assert coming.result().startswith("a longer line\n")
        path.write_text("short\n")
        assert pool.submit(next, text).result(timeout=20) == "short\n"


def test_a_failed_start_names_unit_code_and_what_it_said(bench: Bench, fails: Fails) -> None:
    bench.behave("decode-0", "exit=74")
    error = fails(bench)
    assert error.exit is Exit.FINDINGS
    assert error.message.startswith("decode-0 is failed (ended with exit code 74")
    assert "decode-0| decode-0 cannot start: the test wants it so" in error.details
    assert error.message.endswith("It said: decode-0 cannot start: the test wants it so.")
    assert "`pdctl check` says where" in error.hint
    (run,) = list_runs(bench.fleet().paths.journal)
    assert run.state == "failed" and "decode-0" in run.error
    bench.behave("decode-0", "")
    made = bench.deploy()
    assert "local/start/decode-0" in ids(made) and "local/start/prefill-0" not in ids(made)


def test_a_port_in_use_is_named(bench: Bench, fails: Fails) -> None:
    bench.behave("prefill-0", "exit=73")
    assert "A port is taken by another process" in fails(bench).hint


def test_an_empty_answer_fails_the_canary(bench: Bench, fails: Fails) -> None:
    bench.behave("router", "empty")
    error = fails(bench)
    assert error.code == "canary_failed"
    assert error.message == "The canary through the router answered 200 with no text."


def test_a_missing_model_stops_before_anything_is_written(bench: Bench, fails: Fails) -> None:
    shutil.rmtree(bench.folder / "model")
    error = fails(bench)
    assert (error.code, error.exit) == ("no_model", Exit.USAGE)
    assert error.message.startswith(f"{bench.path}:{line_of(bench, 'path = ')}: model.path: there is no ")
    assert not (bench.folder / ".pdctl" / "host").exists()


def line_of(bench: Bench, head: str) -> int:
    """Of the last line of the fleet file that begins so."""
    lines = enumerate(bench.path.read_text().splitlines(), 1)
    return [number for number, line in lines if line.startswith(head)][-1]


def test_a_truncated_model_is_said_by_the_plan(bench: Bench) -> None:
    weights = bench.folder / "model" / "model.safetensors"
    size = weights.stat().st_size
    os.truncate(weights, size - 4)
    with pytest.raises(PdctlError) as caught:
        bench.plan()
    at = f"{bench.path}:{line_of(bench, 'path = ')}: model.path: {bench.folder}/model on local"
    wrong = f"model.safetensors has {size - 4} bytes and its header promises {size}"
    assert caught.value.message == f"{at} cannot be loaded: {wrong}."


def test_more_ranks_than_kv_heads_are_said_by_the_plan_with_their_line(bench: Bench) -> None:
    text = bench.path.read_text()
    bench.path.write_text("tp = 4".join(text.rsplit("tp = 1", 1)))
    with pytest.raises(PdctlError) as caught:
        bench.plan()
    place = f"{bench.path}:{line_of(bench, 'tp = 4')}: cells.a.engines.decode-0.tp: "
    assert caught.value.message.startswith(f"{place}is 4, and the model has 3 key/value heads")
    assert caught.value.hint == "Set it to 3 or less."


def test_what_starts_by_itself_is_waited_for(bench: Bench) -> None:
    bench.deploy()
    bench.behave("decode-0", "late")
    pid = bench.lives()["decode-0"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    ctx = bench.context()
    until(lambda: "" if ctx.units("local").status()["decode-0"].state == "activating" else "not yet", 20.0)
    assert bench.plan().plan.changes == 0 and "decode-0" in unready(ctx)
    ctx.wait = lambda text: bench.behave("decode-0", "")  # it goes on once it is waited for
    with Journal(ctx.fleet.paths.journal, "deploy") as journal:
        prove_started(ctx, WAIT, journal)
    assert unready(ctx) == {}
    assert "canary through the router" in bench.said


def test_a_silent_unit_keeps_its_part_of_the_recovery_record(bench: Bench) -> None:
    bench.deploy()
    ctx = bench.context()
    record = recovery.Record({"prefill-0": {"inflight": (120.0, 3.0)}, "decode-0": {}})
    recovery.write(ctx.fleet, record)
    pid = bench.lives()["prefill-0"]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(PdctlError) as caught:
            restore(ctx)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (caught.value.code, caught.value.exit) == ("not_put_back", Exit.UNREACHABLE)
    left = recovery.read(ctx.fleet)
    assert left is not None and left.timeouts == {"prefill-0": {"inflight": (120.0, 3.0)}}


def test_down_leaves_nothing_and_can_be_repeated(bench: Bench) -> None:
    bench.deploy()
    lives = bench.lives()
    assert set(down(bench.context()).stopped) == set(lives)
    assert not any(bench.lives().values())
    assert not any(start_time(pid) for pid in lives.values() if pid)
    assert down(bench.context()).stopped == ()
    assert "local/start/prefill-0" in ids(bench.deploy())


def test_down_stops_a_unit_whose_file_is_damaged(bench: Bench) -> None:
    bench.deploy()
    ctx = bench.context()
    Path(ctx.fleet.host_paths("local").unit("decode-0")).write_text("{")
    assert "decode-0" in down(ctx).stopped
    assert not any(bench.lives().values())


def test_down_tells_of_a_port_that_is_not_ours(bench: Bench) -> None:
    bench.deploy()
    down(bench.context())
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", bench.fleet().router.port))
        stranger.listen()
        try:
            down(bench.context())
        except PdctlError as error:
            assert error.exit is Exit.PARTIAL
            assert f"port {bench.fleet().router.port} on local is still held by" in error.details[0]
        else:
            raise AssertionError("down called a taken port free")
