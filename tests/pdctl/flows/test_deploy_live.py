"""Real engines: what a co-restart that is killed or interrupted leaves behind, and what ends that."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.co_restart.states import Stage
from pdctl.flows.context import Context
from pdctl.flows.deploy.gate import unready
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import list_runs
from tests.pdctl.terminal import Terminal

ROOT = Path(__file__).parents[3]
START = 240.0
# Deploys the fleet file argv[1] and dies where its co-restart would begin the stage argv[2].
DIES = """
import os, signal, sys
from pdctl.fleet.load import load_fleet
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.co_restart.states import Stage
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.remote.journal import Journal

actions = co_restart._actions
def dying(steps):
    return {**actions(steps), Stage[sys.argv[2]]: lambda seconds: os.kill(os.getpid(), signal.SIGKILL)}
co_restart._actions = dying
with Context(load_fleet(sys.argv[1])) as ctx, Journal(ctx.fleet.paths.journal, "deploy") as journal:
    apply_deploy(plan_deploy(ctx, 240.0), journal)
"""


def deploy(path: Path) -> list[str]:
    """What was changed."""
    with Context(load_fleet(path)) as ctx, Journal(ctx.fleet.paths.journal, "deploy") as journal:
        made = plan_deploy(ctx, START)
        apply_deploy(made, journal)
        return [p.step.id for p in made.plan.pending if not p.step.gate]


@pytest.fixture(scope="module")
def path(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("killed") / "fleet.toml"
    init_fleet(path, Wanted("killed", str(smollm)))
    try:
        deploy(path)
        yield path
    finally:
        with Context(load_fleet(path)) as ctx:
            down(ctx)


@pytest.mark.parametrize("stage", ["STOP_PREFILL", pytest.param("RESUME", marks=pytest.mark.slow)])
def test_the_next_deploy_ends_a_hold_that_a_killed_one_left(path: Path, stage: str) -> None:
    pages = {"STOP_PREFILL": 300, "RESUME": 301}[stage]
    text = path.read_text()
    path.write_text(text.replace('role = "decode"\n', f'role = "decode"\npages = {pages}\n', 1))
    argv = [sys.executable, "-c", DIES, str(path), stage]
    died = subprocess.run(argv, cwd=ROOT, env=os.environ, capture_output=True, timeout=240)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    with Context(load_fleet(path)) as ctx:
        router = ctx.fleet.router.url
        assert admin.get(ctx, router, "/v1/state")["admission"] == "held"
        assert "co-restart/a" in deploy(path)
        assert admin.get(ctx, router, "/v1/state")["admission"] == "open"
        assert unready(ctx) == {}
    assert deploy(path) == []
    path.write_text(text)


def poll(check: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.05)


def lives(ctx: Context) -> dict[str, object]:
    return {e.name: admin.get(ctx, e.url, "/v1/state")["incarnation"] for e in ctx.fleet.engines()}


@pytest.fixture
def busy(path: Path) -> Iterator[Context]:
    """With a request that no drain waits out."""
    with Context(load_fleet(path)) as ctx:
        url = ctx.fleet.router.url
        body = {"model": ctx.fleet.model.name, "prompt": "A long story:", "ignore_eos": True}
        body |= {"max_tokens": 2000, "temperature": 0}

        def send() -> None:
            httpx.post(f"{url}/v1/completions", json=body, timeout=240.0, trust_env=False)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        poll(lambda: bool(admin.get(ctx, url, "/v1/requests")["requests"]))
        yield ctx
        for request in admin.get(ctx, url, "/v1/requests")["requests"]:
            admin.post(ctx, url, "abort", {"id": request["id"]})
        thread.join(60.0)


@pytest.mark.parametrize("how", ["closed", signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_before_anything_was_stopped_takes_the_hold_back(
    busy: Context, how: signal.Signals | str
) -> None:
    """Also when the terminal is gone, and with it whoever could have read what to do."""
    url, before = busy.fleet.router.url, lives(busy)
    (request,) = admin.get(busy, url, "/v1/requests")["requests"]
    terminal = Terminal()
    words = ("--fleet", str(busy.fleet.path), "restart", "--co", "a", "--yes", "--drain", "120")
    process = terminal.run("-m", "pdctl", *words)
    poll(lambda: admin.state(busy, url).get("admission") == "held")
    terminal.close() if isinstance(how, str) else process.send_signal(how)
    assert process.wait(60) == Exit.INTERRUPTED
    assert admin.get(busy, url, "/v1/state")["admission"] == "open"
    assert lives(busy) == before and unready(busy) == {}
    assert [r["id"] for r in admin.get(busy, url, "/v1/requests")["requests"]] == [request["id"]]
    assert list_runs(busy.fleet.paths.journal)[0].state == "interrupted"
    if not isinstance(how, str):
        said = os.read(terminal.master, 1 << 16).decode()
        assert "Taken back: the hold." in said and "Next: pdctl restart --co a" in said
        terminal.close()


def test_an_interrupt_after_the_drain_takes_that_back_too(path: Path) -> None:
    def interrupt(text: str) -> None:
        if text.endswith(str(Stage.STOP_DECODE)):
            raise KeyboardInterrupt

    with Context(load_fleet(path)) as ctx:
        before = lives(ctx)
        report = co_restart.run(ctx, "a", interrupt)
        (cell,) = report.cells
        assert (report.exit, cell.machine.stage) == (Exit.INTERRUPTED, Stage.UNTOUCHED)
        assert cell.true_now[:2] == ("Nothing was stopped.", "Taken back: the hold and the drain.")
        assert admin.get(ctx, ctx.fleet.router.url, "/v1/state")["admission"] == "open"
        assert lives(ctx) == before
        poll(lambda: unready(ctx) == {})  # the router hears of it with its next look


def test_an_interrupt_after_something_was_stopped_names_the_run_to_resume(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace('role = "decode"\n', 'role = "decode"\npages = 302\n', 1))
    command = [sys.executable, "-m", "pdctl", "--fleet", str(path), "deploy", "--yes", "--no-check"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    said = ""
    while "cell a: start prefills" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    said += process.stderr.read()
    assert process.wait(60) == Exit.INTERRUPTED
    assert "cell a: start prefills interrupted\n" in said
    run = re.search(r"^Next: pdctl resume (\S+)$", said, re.MULTILINE)
    assert run, said
    with Context(load_fleet(path)) as ctx:
        router = ctx.fleet.router.url
        assert admin.get(ctx, router, "/v1/state")["admission"] == "held"
        assert main(["--fleet", str(path), "resume", run[1], "--yes"]) == Exit.OK
        assert admin.get(ctx, router, "/v1/state")["admission"] == "open" and unready(ctx) == {}
    path.write_text(text)
