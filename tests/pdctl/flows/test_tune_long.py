"""What was proposed under a saturated decode fails no healthy request in a long run; a stalled one is cut."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.drill import points
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.load.report import LoadReport
from pdctl.flows.load.run import drive
from pdctl.flows.tune import run as tune
from pdctl.flows.tune.measure import plans
from pdctl.flows.tune.proposal import Wanted as Target
from pdctl.flows.tune.report import Options
from pdctl.remote.journal import Journal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
MINUTES = float(os.environ.get("TUNE_MINUTES", "5"))
SLACK = 1.5


@pytest.fixture
def fleet(smollm: Path, tmp_path: Path) -> Iterator[Context]:
    path = tmp_path / "fleet.toml"
    init_fleet(path, Wanted("long", str(smollm), drill=True))
    with Context(load_fleet(path)) as ctx:
        try:
            with Journal(ctx.fleet.paths.journal, "deploy") as journal:
                apply_deploy(plan_deploy(ctx, 240.0), journal)
            yield ctx
        finally:
            down(ctx)


def saturated(ctx: Context, seconds: float) -> LoadReport:
    shape = plans(ctx.fleet, seconds, 0.05, seconds)[-1].shape
    return asyncio.run(drive(ctx, shape, seed=7))


def state(ctx: Context, engine: str) -> dict[str, Any]:
    return admin.get(ctx, ctx.fleet.engine(engine).url, "/v1/state")


def test_healthy_requests_live_and_a_stalled_one_is_cut_at_the_deadline(fleet: Context) -> None:
    """Without a floor, so that the value is what the measurement alone makes of it."""
    wanted = Target(target=0.05, floor=1.0)
    report = tune.run(fleet, Options(seconds=30.0, limit=300.0, wanted=wanted, apply=True))
    assert report.ok and report.applied and report.verified, report.document()
    value = report.proposal.value if report.proposal else None
    assert value is not None, report.document()["proposal"]

    long = saturated(fleet, MINUTES * 60.0)
    assert [s.code for s in long.shots if not s.ok] == [] and len(long.shots) > 100
    assert state(fleet, "decode-0")["timeouts"]["transfer"]["value"] == float(int(value * 5 / 6))

    stalled: list[LoadReport] = []
    load = threading.Thread(target=lambda: stalled.append(saturated(fleet, 20.0 + value)))
    load.start()
    deadline = time.monotonic() + 60.0
    while state(fleet, "decode-0")["queues"]["waiting"]["depth"] == 0:
        assert time.monotonic() < deadline, "decode was never saturated"
        time.sleep(0.2)
    points.arm(fleet, fleet.fleet.engine("prefill-0"), "stall-transfer")
    load.join()
    failed = [s for s in stalled[0].shots if not s.ok]
    assert [s.code for s in failed] == ["kv_transfer_timeout"], failed
    cut = [s for _, s, how in state(fleet, "prefill-0")["dwell"]["recent"] if how == "failed"][-1]
    # Decode gives up first, 5/6 of the value after its Want, which came before the prompt was computed.
    assert value / 2 <= cut <= value * 5 / 6 + SLACK, (cut, value)
