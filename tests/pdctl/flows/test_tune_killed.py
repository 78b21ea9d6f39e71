"""tune-timeout that is killed, wherever it was: the fleet has its old values, or all of the new ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdctl.flows import admin
from pdctl.flows.recovery.record import path
from pdctl.flows.recovery.restore import restore
from pdctl.units.envfile import parse_env
from tests.pdctl.flows.conftest import Bench

ROOT = Path(__file__).parents[3]
NAMES = ("inflight", "transfer", "prealloc", "router_idle")


def values(bench: Bench) -> dict[str, Any]:
    """Everything that a run may change: what is in force, the env files, the profile."""
    ctx = bench.context()
    live = {u.name: admin.timeouts(ctx, u.url) for u in ctx.fleet.units()}
    found: dict[str, Any] = {
        unit: {name: row[name] for name in NAMES if name in row} for unit, row in live.items()
    }
    for unit in live:
        found[f"{unit}.env"] = parse_env((bench.root() / "env" / f"{unit}.env").read_text())
    profile = (ctx.fleet.paths.profiles / "default.toml").read_text()
    # That a watchdog was seen to fire is written last, and says nothing of another value.
    found["profile"] = "".join(profile.partition("[values.PD_PREFILL_INFLIGHT_TIMEOUT.verified]")[0].split())
    return found


def die(bench: Bench) -> int:
    argv = [sys.executable, "-m", "tests.pdctl.flows.tune_killed", str(bench.folder)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


@pytest.mark.slow
def test_killed_at_every_moment_it_leaves_the_old_values_or_all_of_the_new_ones(bench: Bench) -> None:
    bench.edit("drill = false", "drill = true")
    bench.deploy()
    profile = bench.fleet().paths.profiles / "default.toml"
    before, text = values(bench), profile.read_text()
    new: list[str] = []
    moments = 0
    while die(bench):
        moments += 1
        assert moments < 150
        at = (bench.folder / "seen").read_text().splitlines()[-1]
        ctx = bench.context()
        restore(ctx)
        assert not path(ctx.fleet).exists(), at
        if values(bench) == before:
            continue
        new.append(at)
        back(bench, before, text, at)
    seen = (bench.folder / "seen").read_text().splitlines()
    assert moments >= 15 and {"behind write 3", "behind admin/timeouts/decode-0 1"} <= set(seen), seen
    # Behind the commit, and nowhere before it.
    assert new[0].startswith("behind forget") and len(new) < moments / 2, (new, seen)


def back(bench: Bench, before: dict[str, Any], text: str, at: str) -> None:
    """All of the new values, in force, in env files and in the profile; then the old ones again."""
    ctx = bench.context()
    now = values(bench)
    assert now["prefill-0"]["inflight"] == 45.0 and now["decode-0"]["transfer"] == 37.0, at
    assert now["router"]["router_idle"] == before["router"]["router_idle"], at
    assert now["prefill-0.env"]["PD_PREFILL_INFLIGHT_TIMEOUT"] == "45", at
    assert now["decode-0.env"]["PD_DECODE_TRANSFER_TIMEOUT"] == "37", at
    assert 'PD_PREFILL_INFLIGHT_TIMEOUT]value="45"' in now["profile"], at
    lives = bench.lives()
    bench.deploy()
    assert bench.lives() == lives, at
    (ctx.fleet.paths.profiles / "default.toml").write_text(text)
    bench.deploy()
