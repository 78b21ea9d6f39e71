"""A deploy that was killed can be run again, wherever it was, and finishes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from pdctl.flows.deploy.gate import unready
from pdctl.remote.journal_read import list_runs
from tests.pdctl.flows.conftest import Bench

ROOT = Path(__file__).parents[3]


def killed_everywhere(bench: Bench, release: str) -> list[str]:
    """Deploy until one run gets through; the ids of the steps behind which a run was killed."""
    (bench.folder / "seen").unlink(missing_ok=True)
    argv = [sys.executable, "-m", "tests.pdctl.flows.killed", str(bench.folder), release]
    for _ in range(60):
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=120)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        if done.returncode == 0:
            return (bench.folder / "seen").read_text().splitlines()
    raise AssertionError("it never ended")


def whole(bench: Bench, release: str) -> None:
    assert unready(bench.context()) == {}
    serving = bench.serving()
    assert set(serving) == {"prefill-0", "decode-0", "router"} and len(set(serving.values())) == 1
    current = bench.root() / "current"
    assert current.readlink().name == serving["router"]
    assert (current / "tree" / "engine" / "__init__.py").read_text() == release
    records = [json.loads(p.read_text()) for p in (bench.root() / "deployments").iterdir()]
    newest = max(records, key=lambda r: r["serial"])
    assert set(newest["units"]) == set(serving)
    assert {u["release"] for u in newest["units"].values()} == set(serving.values())
    bench.files = {"engine/__init__.py": release.encode()}
    assert bench.plan().plan.pending == ()


def test_killed_behind_every_step_of_a_first_deploy_and_of_a_change(bench: Bench) -> None:
    first = killed_everywhere(bench, "1")
    assert {"local/release", "local/unit/decode-0", "local/start/prefill-0", "local/record/cell a"} <= set(
        first
    )
    whole(bench, "1")
    bench.edit('role = "decode"', 'role = "decode"\npages = 64')
    second = killed_everywhere(bench, "2")
    assert {"within co-restart/a", "co-restart/a", "local/current", "local/start/router"} <= set(second)
    whole(bench, "2")
    states = [run.state for run in list_runs(bench.fleet().paths.journal)]
    assert states == ["died"] * (len(first) + len(second)), "the runs that got through had nothing left to do"
