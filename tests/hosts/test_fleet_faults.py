"""Real engines on real hosts while things go wrong: restarts under load, bad releases, engines that hang.

One fleet serves the module and the tests follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.exits import Exit
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.co_restart.states import Stage
from pdctl.flows.deploy.result import DeployFailed, State
from pdctl.flows.diagnose import diagnose
from pdctl.release.build import package_files
from tests.hosts.lab.lab import Lab
from tests.hosts.real_fleet import RealFleet, operated


@pytest.fixture(scope="module")
def night(lab: Lab, smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    """Deployed and serving."""
    with operated(tmp_path_factory.mktemp("night"), lab, smollm) as fleet:
        fleet.deploy()
        yield fleet


def test_a_co_restart_across_hosts_under_load_fails_no_request(night: RealFleet) -> None:
    old = {n: night.state(n)["incarnation"] for n in ("prefill-0", "decode-0")}
    with night.load() as shots, night.context() as ctx:
        report = co_restart.run(ctx, "a", night.said.append)
    assert report.ok, report.document()
    cell = report.cells[0]
    assert cell.machine.stage is Stage.DONE
    assert {s.engine: s.was for s in cell.starts} == old
    assert all("gone" in line for line in cell.proof), cell.proof
    assert shots and [s.code for s in shots if not s.ok] == []


def test_a_release_that_breaks_goes_back_while_the_old_one_serves(
    night: RealFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = night.ask()
    broken = dict(package_files())
    serve = "engine/serve.py"
    broken[serve] = broken[serve].replace(b"\ndef ", b"\nimport os; os._exit(70)\n\n\ndef ", 1)
    assert broken[serve] != package_files()[serve]
    with night.load() as shots, monkeypatch.context() as patch:
        patch.setattr("pdctl.flows.deploy.planning.package_files", lambda: broken)
        with pytest.raises(DeployFailed) as caught:
            night.deploy()
    outcome = caught.value.outcome
    assert caught.value.exit is Exit.FINDINGS, caught.value.document()
    states = [g.state for g in outcome.groups]
    assert State.BACK in states and State.FAILED not in states, outcome.document()
    assert night.ask() == before
    assert shots and [s.code for s in shots if not s.ok] == []
    assert night.changes() == [], "what serves is what the fleet file says"


def test_a_frozen_engine_on_a_host_is_named(night: RealFleet) -> None:
    pid = night.state("decode-0")["pid"]
    h2 = night.lab.hosts[1]
    h2.sh(f"kill -STOP {pid}")
    try:
        with night.context() as ctx:
            report = diagnose(ctx)
        assert report.verdict.findings[0].finding.code == "PD202", report.verdict.summary
    finally:
        h2.sh(f"kill -CONT {pid}")
    night.until(lambda: all(e["ready"] for e in night.state("router")["engines"]), "all is ready again")
