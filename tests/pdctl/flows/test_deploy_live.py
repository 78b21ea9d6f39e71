"""Real engines: a deploy killed within its co-restart left admissions held, and the next one ends that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.gate import unready
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet
from pdctl.remote.journal import Journal

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


@pytest.mark.parametrize("stage", ["STOP_PREFILL", "RESUME"])
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
