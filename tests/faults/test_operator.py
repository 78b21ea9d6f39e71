"""Rows 20, 22, 23 and 25: what pdctl does about a fault, on real engines that it supervises."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pdctl.diagnose.report import document
from pdctl.flows import admin
from pdctl.flows.admission import abort
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.diagnose import diagnose
from tests.faults.cell import measured
from tests.faults.load import Load, wait
from tests.pdctl.flows.test_live_fleet import Live, Swallower, live, poll

__all__ = ["live"]
pytestmark = pytest.mark.slow
P, D = "prefill-0", "decode-0"


def state(live: Live, name: str) -> dict[str, Any]:
    return dict(admin.state(live.ctx, live.ctx.fleet.unit(name).url))


def free(live: Live) -> bool:
    pages = [state(live, n)["pages"] for n in (P, D)]
    return all(p["free"] == p["total"] for p in pages)


@contextmanager
def stranger(port: int) -> Iterator[threading.Event]:
    """This process takes a port as soon as it is free; the event says that it has it."""
    has, over = threading.Event(), threading.Event()

    def snatch() -> None:
        while not over.is_set():
            try:
                with socket.create_server(("127.0.0.1", port)):
                    has.set()
                    over.wait(300.0)
            except OSError:
                over.wait(0.01)

    thread = threading.Thread(target=snatch)
    thread.start()
    try:
        yield has
    finally:
        over.set()
        thread.join(10.0)


def test_a_foreign_holder_of_a_port_blocks_the_relaunch_and_is_named(live: Live, record: Path | None) -> None:
    port = live.ctx.fleet.engine(D).port
    with measured(20, "a stranger takes the port between stop and start", D, record) as result:
        struck = time.monotonic()
        with stranger(port) as has:
            report = co_restart.run(live.ctx, "a", lambda text: None)
            result.detect_s = time.monotonic() - struck
        reason = report.cells[0].machine.reason
        result.detect_by = f"pdctl: {reason.partition(' (')[0]}"
        assert not report.ok and f"port {port}" in reason and str(os.getpid()) in reason, reason
        if has.is_set():
            result.evidence = f"pid {os.getpid()} listens on port {port}"
        again = co_restart.run(live.ctx, "a", lambda text: None)
        assert again.ok, again.document()
        result.recover_s, result.restarts = time.monotonic() - struck, 2
        poll(lambda: free(live))


def test_a_rolling_change_serves_no_mixed_pair(live: Live, right: list[str], record: Path | None) -> None:
    """A value that both sides read is changed; while admissions are open, both always have the same."""
    folder = live.ctx.fleet.dir
    mixed: list[str] = []
    with measured(22, "pdctl deploy of a changed value", "prefill, then decode", record) as result:
        profile, name = folder / "profiles" / "default.toml", "[values.PD_RANK_TIMEOUT]"
        before = float(state(live, D)["timeouts"]["rank"]["value"])
        old, new = (f'{name}\nvalue = "{value:g}"' for value in (before, before + 1))
        assert old in profile.read_text()
        over = threading.Event()
        # The router holds requests for as long as two engines take to start.
        with Load(live.url, right, hung=200.0) as load:
            load.wait_rights(1, 0.0, 60.0, "a right answer before")
            watcher = threading.Thread(target=_watch, args=(live, over, mixed))
            watcher.start()
            struck = time.monotonic()
            profile.write_text(profile.read_text().replace(old, new))
            done = pdctl(live, "deploy", "--yes")
            assert done.returncode == 0, done.stdout + done.stderr
            load.wait_rights(2, time.monotonic(), 60.0, "right answers after")
            load.end()
            over.set()
            watcher.join(10.0)
        values = [state(live, n)["timeouts"]["rank"]["value"] for n in (P, D)]
        if values == [before + 1] * 2:
            result.evidence = f"both engines have {values[0]:g} s in place of {before:g} s"
        fates = load.fates()
        result.requests, result.hung, result.wrong = len(load.shots), fates["hung"], fates["wrong"]
        result.recover_s, result.restarts = max(s.ended for s in load.shots) - struck, 2
        assert not mixed, mixed[0]
        assert fates == {"right": len(load.shots)}, fates
        poll(lambda: free(live))


def _watch(live: Live, over: threading.Event, mixed: list[str]) -> None:
    while not over.wait(0.1):
        try:
            router = admin.state(live.ctx, live.url)
            values = {n: state(live, n)["timeouts"]["rank"]["value"] for n in (P, D)}
            again = admin.state(live.ctx, live.url)
        except Exception:  # something is being restarted
            continue
        served = all(e["ready"] for e in router["engines"] + again["engines"])
        if served and router["admission"] == again["admission"] == "open" and len(set(values.values())) > 1:
            mixed.append(f"admissions are open before {values}")


def pdctl(live: Live, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pdctl", "--fleet", str(live.ctx.fleet.path), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_stuck_requests_that_no_engine_has_are_named_in_one_run(live: Live, record: Path | None) -> None:
    """What lies between router and engines swallows every request: a dozen stuck, engines idle."""
    fleet = live.ctx.fleet
    live.ctx.units("local").stop("router")
    prefill, decode = fleet.engine(P), fleet.engine(D)
    argv = [sys.executable, "-m", "engine", "router", "--instance", "router"]
    argv += ["--host", fleet.router.address, "--port", str(fleet.router.port)]
    argv += ["--served-model-name", fleet.model.name]
    env = {**os.environ, "PD_FLEET_TOKEN_FILE": str(fleet.paths.token)}
    with (
        measured(23, "12 requests are swallowed on their way", "router to engines", record) as result,
        Swallower(prefill.port) as first,
        Swallower(decode.port) as second,
    ):
        argv += ["--prefill", f"{P}=http://127.0.0.1:{first.port},{prefill.bootstrap},a"]
        argv += ["--decode", f"{D}=http://127.0.0.1:{second.port},a"]
        router = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            poll(lambda: any(e["ready"] for e in admin.state(live.ctx, live.url).get("engines", [])))
            for _ in range(12):
                live.send()
            poll(lambda: len(live.live_ids()) == 12)
            ids, struck = set(live.live_ids()), time.monotonic()
            idle = not state(live, P)["requests"] and not state(live, D)["requests"]
            live.diagnosed("PD601")
            result.detect_s = time.monotonic() - struck
            result.detect_by = "pdctl diagnose: PD601"
            found = diagnose(live.ctx)
            told = json.dumps(document(found)["ledger"], default=str)
            assert all(id in told for id in ids), "a stuck request is not named"
            if idle:
                result.evidence = "the router counts 12, the engines 0"
            for id in ids:
                abort(live.ctx, id)
            poll(lambda: not live.live_ids())
            result.requests, result.recover_s = 12, time.monotonic() - struck
        finally:
            router.kill()
            router.wait(30)
    live.ctx.units("local").start("router")
    poll(lambda: all(e["ready"] for e in admin.state(live.ctx, live.url).get("engines", [{"ready": False}])))


def test_a_run_that_is_killed_midway_leaves_engines_alone_and_is_taken_up(
    live: Live, record: Path | None
) -> None:
    """SIGKILL of `pdctl restart --co`, as when the SSH session of the operator is lost."""
    with measured(25, "SIGKILL during a co-restart", "pdctl", record) as result:
        command = [
            sys.executable,
            "-m",
            "pdctl",
            "--fleet",
            str(live.ctx.fleet.path),
            "restart",
            "--co",
            "a",
            "--yes",
        ]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        wait(lambda: admin.state(live.ctx, live.url).get("admission") == "held", 60.0, "the hold", every=0.02)
        struck = time.monotonic()
        process.send_signal(signal.SIGKILL)
        if process.wait(10.0) == -9:
            result.evidence = f"pid {process.pid} ended by signal 9 while admissions were held"
        again = pdctl(live, "restart", "--co", "a", "--yes")
        assert again.returncode == 0, again.stdout + again.stderr
        result.recover_s, result.restarts = time.monotonic() - struck, 2
        assert admin.state(live.ctx, live.url)["admission"] == "open"
        live.send()
        poll(lambda: free(live) and not live.live_ids())


def test_a_killed_supervisor_takes_no_engine_with_it_and_the_next_adopts_it(
    live: Live, record: Path | None
) -> None:
    """The keeper of decode is killed: decode serves on, status tells, a co-restart puts it right."""
    units = live.ctx.units("local")
    with measured(25, "SIGKILL of the keeper", D, record) as result:
        status = units.status([D])[D]
        keeper, pid = status.keeper_pid, status.pid
        if keeper is None or pid is None:
            pytest.skip("systemd supervises here: it is not killed by anyone")
        struck = time.monotonic()
        os.kill(keeper, signal.SIGKILL)
        wait(lambda: not os.path.exists(f"/proc/{keeper}"), 10.0, "the keeper to be gone")
        result.evidence = f"keeper pid {keeper} is gone"
        assert os.path.exists(f"/proc/{pid}"), "decode went with its keeper"
        told = units.status([D])[D]
        result.detect_s, result.detect_by = time.monotonic() - struck, f"pdctl: {told.state}, {told.reason}"
        live.send()
        poll(lambda: not live.live_ids())
        again = co_restart.run(live.ctx, "a", lambda text: None)
        assert again.ok, again.document()
        result.recover_s, result.restarts, result.requests = time.monotonic() - struck, 2, 1
        assert units.status([D])[D].keeper_pid not in (None, keeper)
