"""Real engines on real hosts, from nothing to the night: deploys, restarts, faults, rollbacks.

One fleet serves the module and the tests follow one another as an operator's day would.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.co_restart.states import Stage
from pdctl.flows.deploy.result import DeployFailed, State
from pdctl.flows.deploy.rollback import plan_rollback
from pdctl.flows.diagnose import diagnose
from pdctl.flows.down import down
from pdctl.flows.status import collect_status
from pdctl.release.build import package_files
from tests.hosts import hostpython
from tests.hosts.lab.lab import Lab
from tests.hosts.operator_home import make_home
from tests.hosts.real_fleet import WAIT, RealFleet, make_fleet


@pytest.fixture(scope="module")
def night(lab: Lab, smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    if not hostpython.bind():
        pytest.skip(
            "the hosts have Python 3.11, these tests run on another: its libraries do not load there."
        )
    folder = tmp_path_factory.mktemp("night")
    with pytest.MonkeyPatch.context() as patch, lab.inside():
        make_home(folder / "home", lab)
        patch.setenv("HOME", str(folder / "home"))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        for host in lab.hosts:
            hostpython.install(host)
        fleet = make_fleet(folder / "fleet", lab, smollm)
        try:
            yield fleet
        finally:
            lab.restore()
            with fleet.context() as ctx:
                down(ctx)


def test_from_nothing_to_answers(night: RealFleet) -> None:
    made, outcome = night.deploy()
    assert outcome.exit is Exit.OK and made.plan.changes > 10
    assert "Paris" in night.ask()
    with night.context() as ctx:
        status = collect_status(ctx)
        assert status.healthy
    assert {p["instance"] for p in night.state("decode-0")["peers"]} == {"prefill-0"}


def test_the_second_deploy_changes_nothing_and_restarts_nothing(night: RealFleet) -> None:
    pids = night.pids()
    made, outcome = night.deploy()
    assert (made.plan.changes, outcome.exit) == (0, Exit.OK)
    assert night.pids() == pids and all(pids.values())


def test_kv_moves_between_hosts_over_tcp(night: RealFleet) -> None:
    """The bytes cross the hosts' network: UCX knows another machine by its boot id."""
    h1 = night.lab.hosts[0]

    def sent_by_h1() -> int:
        return int(json.loads(h1.sh("ip -j -s link show eth0"))[0]["stats64"]["tx"]["bytes"])

    before, done = sent_by_h1(), night.state("decode-0")["counters"]
    prompt = "The quick brown fox jumps over the lazy dog. " * 20
    for _ in range(4):  # over both cells, least loaded first
        night.ask(prompt, 1)
    sent = sent_by_h1() - before
    moved = night.state("decode-0")["counters"]
    assert moved != done
    # 180 tokens of SmolLM2 in fp32: 30 layers x 3 heads x 64 x 2 x 4 bytes a token.
    assert sent > 180 * 30 * 3 * 64 * 2 * 4, f"{sent} bytes left h1"


def test_a_changed_value_restarts_its_cell_alone_and_no_request_fails(night: RealFleet) -> None:
    pids = night.pids()
    night.edit('host = "h3"\nport = 21013\npages = 256', 'host = "h3"\nport = 21013\npages = 250')
    with night.load(20.0) as shots:
        _, outcome = night.deploy()
    assert outcome.exit is Exit.OK
    assert [g.group for g in outcome.groups if g.state is State.DONE] == ["cell b"]
    after = night.pids()
    assert {n for n in pids if pids[n] != after[n]} == {"prefill-1", "decode-1"}
    assert shots and [s.code for s in shots if not s.ok] == []


def test_a_co_restart_across_hosts_under_load_fails_no_request(night: RealFleet) -> None:
    old = {n: night.state(n)["incarnation"] for n in ("prefill-0", "decode-0")}
    with night.load(30.0) as shots, night.context() as ctx:
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
    with night.load(40.0) as shots, monkeypatch.context() as patch:
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


def test_a_rollback_goes_back_to_what_served_before(night: RealFleet) -> None:
    assert "250" in (night.folder / "fleet.toml").read_text()
    with night.context() as ctx:
        made, target = plan_rollback(ctx, WAIT)
    assert target.id and made.plan.changes
    ids = [p.step.id for p in made.plan.pending if not p.step.gate]
    assert any("b" in i for i in ids) and not any(i.startswith("co-restart/a") for i in ids), ids


def test_a_decode_restarted_by_hand_on_its_host_is_named(night: RealFleet) -> None:
    h2 = night.lab.hosts[1]
    unit = "pdctl-decode@night-decode-0.service"
    h2.sh(f"systemctl restart {unit}")
    codes: list[str] = []

    def named() -> bool:
        with night.context() as ctx:
            codes[:] = [f.finding.code for f in diagnose(ctx).verdict.findings]
        return bool({"PD204", "PD501", "PD502"} & set(codes))

    night.until(named, "a finding names the restart", 30.0)
    night.until(lambda: night.state("router")["engines"][0]["ready"], "the pair is back")
    assert "Paris" in night.ask()


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


def test_a_host_that_is_gone_keeps_only_its_own_cell_from_a_deploy(night: RealFleet) -> None:
    night.edit("bootstrap_port = 21002", "token_budget = 500\nbootstrap_port = 21002")
    night.lab.crash("h3")
    try:
        with pytest.raises(PdctlError) as caught:
            night.deploy()
        assert caught.value.exit is Exit.PARTIAL, caught.value.document()
        assert isinstance(caught.value, DeployFailed)
        states = {g.group: g.state for g in caught.value.outcome.groups}
        assert (states["cell a"], states["cell b"]) == (State.DONE, State.BLOCKED)
        with night.context() as ctx:
            report = diagnose(ctx)
        said = "Host h3 cannot be reached, and with it prefill-1 and decode-1."
        assert said in report.verdict.summary, report.verdict.summary
    finally:
        night.lab.boot("h3")
    night.until(
        lambda: all(e["ready"] for e in night.state("router")["engines"]), "h3 came back by itself", 120
    )
    assert night.changes() == []
