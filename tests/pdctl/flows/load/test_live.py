"""Real engines: a healthy pair answers every round, aborts hold nothing, and the wedge of the field shows.

The prefill keeps stale peer state (`--legacy-bootstrap`), as fleets of today do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from pdctl import contracts
from pdctl.exits import Exit
from pdctl.flows.load.client import Target
from pdctl.flows.load.plan import Shape
from pdctl.flows.load.report import LoadReport
from pdctl.flows.load.run import drive
from pdctl.render.load import told
from tests.e2e.stack import Stack, stack, wait_for

# Fleets of their own, for minutes: `make test-slow`.
pytestmark = pytest.mark.slow

P, D = "prefill-0", "decode-0"


@pytest.fixture(scope="module")
def pair(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("load"), smollm) as made:
        made.engine(P, "prefill", flags=("--legacy-bootstrap",))
        made.engine(D, "decode")
        made.router()
        made.wait_ready()
        yield made


def load(pair: Stack, shape: Shape) -> LoadReport:
    return asyncio.run(drive(Target(pair["router"].url, "smollm2"), shape))


def test_a_healthy_pair_answers_every_round(pair: Stack) -> None:
    report = load(pair, Shape(agents=3, seconds=60.0, rounds=2, tokens=8, long=0.5))
    assert report.ok and report.all.ok == 6, report.document()
    assert all(shot.ttft is not None and shot.tokens >= 1 for shot in report.shots)
    pair.baseline(P, D)


def test_requests_that_are_given_up_hold_no_page(pair: Stack) -> None:
    before = pair["router"].state()["counters"]["requests_aborted"]
    report = load(pair, Shape(agents=4, seconds=60.0, rounds=2, tokens=8, abort=0.6))
    assert report.ok and report.all.aborted >= 3 and report.all.ok >= 1, report.document()
    pair.baseline(P, D)
    counters = pair["router"].state()["counters"]
    assert counters["requests_aborted"] > before and not counters["requests_failed"]


def test_agents_hang_after_a_restart_of_decode_alone_and_each_is_named(pair: Stack) -> None:
    pair[D].end(signal.SIGKILL)
    pair[D].start()
    pair[D].wait_ready()
    wait_for("the router to see it", lambda: pair["router"].ready(), 30.0)
    report = load(pair, Shape(agents=3, seconds=1.0, rounds=1, tokens=8, deadline=5.0))
    assert report.all.hung == 3 and report.exit() == Exit.FINDINGS, report.document()
    assert contracts.faults("load", report.document()) == []
    for shot in report.hung:
        stands = shot.stands
        assert stands is not None and stands.prefill is not None and stands.decode is not None
        assert (stands.stage, stands.prefill.engine, stands.prefill.stage) == ("dispatched", P, "inflight")
        assert stands.prefill.stage_age_s is not None and 1.0 < stands.prefill.stage_age_s < 6.0
        assert stands.age_s is not None and stands.age_s >= 4.0
        assert shot.id in told(shot) and f"{P} inflight for " in told(shot)
    for name in (D, P):
        pair[name].end(signal.SIGKILL)
    for name in (P, D):
        pair[name].start()
    for name in (P, D):
        pair[name].wait_ready()
    wait_for("the router to see both", lambda: pair["router"].ready(), 30.0)
    after = load(pair, Shape(agents=3, seconds=60.0, rounds=1, tokens=8))
    assert after.ok and after.all.ok == 3, after.document()
    pair.baseline(P, D)


@pytest.mark.timeout(900)
def test_the_wedge_as_an_operator_sees_it_and_its_cure(smollm: Path, tmp_path: Path) -> None:
    def pdctl(*words: str, expect: int = 0) -> str:
        command = [sys.executable, "-m", "pdctl", *words]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=290, env=os.environ
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout

    def loaded(expect: Exit, *words: str) -> dict[str, Any]:
        found = json.loads(pdctl("load", "--json", "--agents", "3", *words, expect=expect))
        assert contracts.faults("load", found) == []
        return dict(found)

    pdctl("init", "--local", "--model", str(smollm), "--drill")
    path = tmp_path / "fleet.toml"
    document: Any = tomlkit.parse(path.read_text())
    document["cells"]["a"]["engines"][P]["legacy_bootstrap"] = True
    path.write_text(tomlkit.dumps(document))
    try:
        pdctl("deploy", "--yes")
        assert loaded(Exit.OK, "--rounds", "3")["all"]["ok"] == 9
        pdctl("restart", D, "--yes")
        wedged = loaded(Exit.FINDINGS, "--rounds", "2", "--seconds", "6", "--deadline", "5")
        assert [row["stands"]["prefill"]["stage"] for row in wedged["hung"]] == ["inflight"] * 6
        pdctl("restart", "--co", "--yes")
        assert loaded(Exit.OK, "--rounds", "3")["all"]["ok"] == 9
    finally:
        pdctl("down", "--yes")
