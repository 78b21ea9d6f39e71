"""A bisect that is killed leaves the old values behind on the next run, and goes on with what it had
learned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.flows.bisect import recovery, state
from tests.pdctl.flows.bisect.fleet import in_force, installed, starter
from tests.pdctl.flows.bisect.killed import CULPRIT
from tests.pdctl.flows.conftest import Bench

ROOT = Path(__file__).parents[4]


def killed(bench: Bench, *points: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tests.pdctl.flows.bisect.killed", str(bench.folder), *points]
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=120)


def until_the_end(bench: Bench, *points: str) -> list[str]:
    """Killed at one point after the other; after each, what is left is put back and nothing of it remains."""
    was = installed(bench), in_force(bench)
    while (done := killed(bench, *points)).returncode != 0:
        assert done.returncode == -9, done.stderr
        ctx = bench.context()
        recovery.restore(ctx, starter(bench))
        assert (installed(bench), in_force(bench)) == was, seen(bench)[-1]
        assert not recovery.path(ctx.fleet).exists()
    assert done.stdout.split() == [CULPRIT]
    assert (installed(bench), in_force(bench)) == was
    return seen(bench)


def seen(bench: Bench) -> list[str]:
    return (bench.folder / "seen").read_text().splitlines()


def test_killed_in_the_middle_leaves_old_values_and_goes_on(fresh: Bench) -> None:
    points = ("within restart 1", "trial.change_env 4", "trial.put_live 2")
    assert set(until_the_end(fresh, *points)) == set(points)


@pytest.mark.slow
def test_the_next_run_puts_back_first_and_keeps_what_was_learned(fresh: Bench) -> None:
    """The state is written once before, and before and behind each mix."""
    assert killed(fresh, "state.write 7").returncode == -9
    assert recovery.path(fresh.fleet()).exists()
    tested = len(json.loads(state.path(fresh.fleet()).read_text())["trials"])
    again = killed(fresh, "state.write 7")
    assert (again.returncode, again.stdout.split()) == (0, [CULPRIT])
    assert tested == 3


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_killed_at_every_step(fresh: Bench) -> None:
    points = until_the_end(fresh)
    names = {point.rpartition(" ")[0] for point in points}
    assert {"trial.write", "trial.change_env", "trial.put_live", "state.write"} <= names
    assert {"within restart", "after restart", "recovery.change_env"} <= names and len(points) > 30
