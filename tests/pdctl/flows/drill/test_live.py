"""Drills on a real fleet: found, undone, healthy requests untouched, whatever ends the run of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.drill import points
from pdctl.flows.drill.catalogue import DRILLS, chosen
from pdctl.flows.drill.run import run
from pdctl.flows.recovery import record
from pdctl.remote.journal_read import list_runs

# Fleets of their own, for minutes: `make test-slow`.
pytestmark = pytest.mark.slow

QUICK = ("stall-transfer", "freeze-engine")


def until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.05)


def nothing_left(ctx: Context) -> None:
    fleet = ctx.fleet
    assert not record.path(fleet).exists()
    assert not [p for e in fleet.engines() for p in points.armed(ctx, e)]
    router = admin.get(ctx, fleet.router.url, "/v1/state")
    assert router["admission"] == "open" and all(e["ready"] for e in router["engines"])
    for engine in fleet.engines():
        pids = [r["pid"] for r in admin.get(ctx, engine.url, "/v1/state")["ranks"]]
        assert all(" (python" in stat(pid) and ") T" not in stat(pid) for pid in pids)


def stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def played(ctx: Context, *names: str) -> None:
    board = run(ctx, chosen(names, every=not names))
    assert board.ok, board.document()
    assert [row.name for row in board.rows] == [n for n in DRILLS if not names or n in names]
    for row in board.rows:
        assert row.evidence and row.detected and not row.skipped, row
        assert row.took is not None and row.took <= row.within and row.undone is not None, row
        assert row.asked >= 2 and (not row.spares or row.answered == row.asked), row
    nothing_left(ctx)


def test_each_is_found_and_undone_and_costs_no_other_request(live: Context) -> None:
    played(live, *QUICK)


def test_every_drill_is_found_and_undone(live: Context) -> None:
    played(live)


def test_a_run_that_is_killed_is_undone_by_the_next_one(live: Context) -> None:
    """While it has decode stopped: nothing of it answers until somebody undoes that."""
    words = ["--fleet", str(live.fleet.path), "--json", "drill", "run"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    command = [sys.executable, "-m", "pdctl", *words]
    ranks = admin.get(live, live.fleet.engine("decode-0").url, "/v1/state")["ranks"]
    process = subprocess.Popen([*command, "freeze-rank", "--yes"], env=env, stdout=subprocess.DEVNULL)
    until(lambda: ") T" in stat(ranks[-1]["pid"]))
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert ") T" in stat(ranks[-1]["pid"]) and record.path(live.fleet).exists()
    done = subprocess.run([*command[:-2], "resume"], env=env, capture_output=True, text=True, timeout=60)
    assert f"decode-0: pid {ranks[-1]['pid']} goes on" in json.loads(done.stdout)["resumed"], done.stderr
    until(lambda: all(e["ready"] for e in admin.state(live, live.fleet.router.url)["engines"]))
    nothing_left(live)


def test_an_interrupted_run_undoes_it_itself(live: Context) -> None:
    command = [sys.executable, "-m", "pdctl", "--fleet", str(live.fleet.path)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    process = subprocess.Popen([*command, "drill", "run", "hold-forgotten", "--yes"], env=env)
    router = live.fleet.router.url
    until(lambda: admin.state(live, router).get("admission") == "held")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == Exit.INTERRUPTED
    assert list_runs(live.fleet.paths.journal)[0].state == "interrupted"
    nothing_left(live)


def test_a_fault_that_nothing_finds_is_a_wrong_row_and_is_undone_all_the_same(live: Context) -> None:
    blind = replace(DRILLS["hold-forgotten"], codes=("PD999",), within=6.0)
    board = run(live, [blind])
    assert not board.ok and board.exit is Exit.FINDINGS
    assert "PD604 router led, not PD999" in board.rows[0].wrong[0] and board.rows[0].undone is not None
    nothing_left(live)


def test_a_profile_that_is_not_marked_is_refused_before_anything_is_asked(live: Context) -> None:
    path = live.fleet.paths.profiles / "drill.toml"
    text = path.read_text()
    path.write_text(text.replace("drillable = true\n", ""))
    asked: list[str] = []
    try:
        with pytest.raises(ConfigError) as caught:
            run(live, chosen(["hold-forgotten"], False), confirm=asked.append)
    finally:
        path.write_text(text)
    assert caught.value.code == "not_drillable" and "--yes-really" in caught.value.hint and not asked
