"""Real engines on real hosts, from nothing to the night: deploys, and what keeps a cell from one.

One fleet serves the module and the tests follow one another as an operator's day would; the slow ones, which
also run without the others, begin with a deploy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.deploy.result import DeployFailed, State
from pdctl.flows.diagnose import diagnose
from pdctl.flows.status import collect_status
from tests.hosts.lab.lab import Lab
from tests.hosts.real_fleet import RealFleet, operated


@pytest.fixture(scope="module")
def night(lab: Lab, smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    with operated(tmp_path_factory.mktemp("night"), lab, smollm) as fleet:
        yield fleet


@pytest.fixture
def standing(night: RealFleet) -> RealFleet:
    night.deploy()
    return night


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


def test_a_changed_profile_value_restarts_its_cell_alone_and_no_request_fails(night: RealFleet) -> None:
    """Cell b has a profile of its own; cell a serves the load meanwhile."""
    pids = night.pids()
    night.edit('value = "20"', 'value = "25"', "profiles/b.toml")
    with night.load() as shots:
        made, outcome = night.deploy()
    assert [p.step.id for p in made.plan.of("preflight")] == ["preflight/cell b"]
    assert outcome.exit is Exit.OK
    assert [g.group for g in outcome.groups if g.state is State.DONE] == ["cell b"]
    after = night.pids()
    assert {n for n in pids if pids[n] != after[n]} == {"prefill-1", "decode-1"}
    assert shots and [s.code for s in shots if not s.ok] == []
    assert 'PD_RANK_TIMEOUT="25"' in night.lab.hosts[2].sh("cat /opt/pdctl/night/env/decode-1.env")


@pytest.mark.slow
def test_a_stranger_on_a_port_stops_its_cell_and_the_old_one_serves_on(standing: RealFleet) -> None:
    h2, pids, current = standing.lab.hosts[1], standing.pids(), standing.current()
    standing.edit("port = 21003", "port = 21903")
    code = "import socket,time; s=socket.create_server(('0.0.0.0',21903)); time.sleep(600)"
    h2.sh(f'systemd-run --unit=stranger --uid=dev python3 -c "{code}"')
    try:
        standing.until(lambda: h2.sh("ss -Hltn 'sport = :21903'"), "the stranger listens")
        done = standing.pdctl("deploy", "--yes")
    finally:
        h2.sh("systemctl stop stranger")
        standing.edit("port = 21903", "port = 21003")
    assert done.returncode == Exit.FINDINGS, done.stdout + done.stderr
    assert "decode-0, ports: 21903 held by pid" in done.stderr and "wanted: 21903 free" in done.stderr
    assert "systemctl stop stranger.service on h2" in done.stderr
    assert (standing.pids(), standing.current()) == (pids, current)
    assert "Paris" in standing.ask() and standing.changes() == []


@pytest.mark.slow
def test_a_host_that_is_gone_keeps_only_its_own_cell_from_a_deploy(standing: RealFleet) -> None:
    standing.edit("bootstrap_port = 21002", "token_budget = 500\nbootstrap_port = 21002")
    standing.lab.crash("h3")
    try:
        with pytest.raises(PdctlError) as caught:
            standing.deploy()
        assert caught.value.exit is Exit.PARTIAL, caught.value.document()
        assert isinstance(caught.value, DeployFailed)
        states = {g.group: g.state for g in caught.value.outcome.groups}
        assert (states["cell a"], states["cell b"]) == (State.DONE, State.BLOCKED)
        with standing.context() as ctx:
            report = diagnose(ctx)
        said = "Host h3 cannot be reached, and with it prefill-1 and decode-1."
        assert said in report.verdict.summary, report.verdict.summary
    finally:
        standing.lab.boot("h3")
    standing.until(
        lambda: all(e["ready"] for e in standing.state("router")["engines"]), "h3 came back by itself", 120
    )
    assert standing.changes() == []
