"""`pdctl diagnose` over two real hosts: what a person or a stranger did there is the first finding."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdctl import contracts
from pdctl.flows.init import Remote, Wanted, init_fleet
from tests.hosts import hostpython
from tests.hosts.lab.host import LabHost, until
from tests.hosts.lab.lab import Lab
from tests.hosts.operator_home import make_home

PREFILL, DECODE, ROUTER = (
    f"pdctl-{role}@chk-{name}.service"
    for role, name in (("prefill", "prefill-0"), ("decode", "decode-0"), ("router", "router"))
)


@dataclass
class Fleet:
    """A prefill and the router on h1, a decode on h2, deployed and serving."""

    folder: Path

    def pdctl(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pdctl", "--fleet", str(self.folder / "fleet.toml"), *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=self.folder)

    def diagnose(self) -> dict[str, Any]:
        done = self.pdctl("diagnose", "--json")
        document: dict[str, Any] = json.loads(done.stdout)
        assert contracts.faults("diagnose", document) == []
        assert done.returncode == document["exit"]
        return document

    def codes(self) -> dict[str, dict[str, Any]]:
        """Code -> finding; the first of a code counts."""
        return {f["code"]: f for f in reversed(self.diagnose()["findings"])}

    def heal(self) -> None:
        done = self.pdctl("restart", "--co", "a", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr

    def ready(self) -> bool:
        done = self.pdctl("status", "--json")
        return done.returncode == 0


@pytest.fixture(scope="module")
def fleet(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if not hostpython.bind():
        pytest.skip("the hosts have another Python than this machine")
    folder = tmp_path_factory.mktemp("diagnose")
    make_home(folder / "home", lab)
    was = os.environ["HOME"]
    with lab.inside():
        for host in lab.hosts[:2]:
            hostpython.install(host)
        os.environ["HOME"] = str(folder / "home")
        try:
            made = Fleet(folder / "fleet")
            model = (folder / "home/.cache/pdctl/models/smollm2-135m").resolve()
            remotes = tuple(Remote(h.name, h.name, h.address) for h in lab.hosts[:2])
            path = made.folder / "fleet.toml"
            init_fleet(path, Wanted("chk", str(model), hosts=remotes))
            ours = f'transport = "ssh"\nruntime = "existing"\npython = "{hostpython.PYTHON}"\n'
            path.write_text(path.read_text().replace('transport = "ssh"\n', ours))
            done = made.pdctl("deploy", "--yes")
            assert done.returncode == 0, done.stdout + done.stderr
            yield made
            made.pdctl("down", "--yes")
        finally:
            os.environ["HOME"] = was


@pytest.fixture
def serving(fleet: Fleet, hosts: list[LabHost]) -> Iterator[Fleet]:
    """Healthy, and nothing of this test is left for the next."""
    until(lambda: "PD204" not in fleet.codes() or fleet.heal(), 200.0, "no recent hand restart")
    document = fleet.diagnose()
    assert document["verdict"]["status"] == "healthy", document["findings"]
    yield fleet


def test_a_disk_that_fills_up_is_said(serving: Fleet, hosts: list[LabHost]) -> None:
    """The folder of the fleet moves to a small disk while it serves."""
    root = "/opt/pdctl/chk"
    hosts[1].sh(f"mount -t tmpfs -o size=20M tmpfs {root} && head -c 19M /dev/zero >{root}/dump")
    try:
        finding = serving.codes()["PD701"]
    finally:
        hosts[1].sh(f"umount {root}")
    assert finding["subject"] == "h2" and finding["severity"] == "error" and "is full" in finding["summary"]
    assert "PD701" not in serving.codes()


def test_a_host_that_is_away_skips_its_rules_aloud_and_costs_seconds(serving: Fleet, lab: Lab) -> None:
    lab.freeze("h2")
    document = serving.diagnose()
    lab.thaw("h2")
    assert document["seconds"] < 15.0
    skipped = {(s["code"], s["subject"]) for s in document["rules"]["skipped"]}
    assert {("PD801", "h2"), ("PD701", "h2"), ("PD201", "decode-0")} <= skipped


def test_a_router_restarted_by_hand_is_named_and_a_deploy_is_not(
    serving: Fleet, hosts: list[LabHost]
) -> None:
    assert "PD204" not in serving.codes(), "pdctl's own starts are asked for"
    hosts[0].sh(f"systemctl restart {ROUTER}")
    found = serving.codes()["PD204"]
    assert found["subject"] == "router" and "by hand" in found["summary"]
    serving.pdctl("restart", "router", "--yes")


def test_a_decode_restarted_by_hand_is_named_at_once_with_the_side_that_was_not(
    serving: Fleet, hosts: list[LabHost]
) -> None:
    hosts[1].sh(f"systemctl restart --no-block {DECODE}")
    until(lambda: "hand" in str(serving.codes().get("PD204")), 15.0, "the restart is named")
    until(serving.ready, 120.0, "the pair is linked again")
    document = serving.diagnose()
    first = document["findings"][0]
    assert (first["code"], first["subject"], document["exit"]) == ("PD204", "decode-0", 3)
    assert "was started by hand" in first["summary"] and "without prefill-0" in first["summary"]
    assert any("prefill-0 linked to its new life" in line for line in first["evidence"])


@contextlib.contextmanager
def stranger(host: LabHost, port: int) -> Iterator[None]:
    code = f"import socket,time; s=socket.create_server(('0.0.0.0',{port})); time.sleep(600)"
    host.sh(f'systemd-run --unit=stranger --uid=dev python3 -c "{code}"')
    try:
        until(lambda: host.sh(f"ss -Hltn 'sport = :{port}'"), what="the stranger listens")
        yield
    finally:
        host.sh("systemctl stop stranger")


@pytest.mark.slow
def test_a_stranger_on_an_engines_port_is_the_cause_of_its_crash_loop(
    serving: Fleet, hosts: list[LabHost]
) -> None:
    hosts[1].sh(f"systemctl stop {DECODE}")
    with stranger(hosts[1], 21003):
        hosts[1].sh(f"systemctl start --no-block {DECODE}")
        until(lambda: serving.diagnose()["findings"][0]["code"] == "PD206", 60.0, "the stranger leads")
        document = serving.diagnose()
    first = document["findings"][0]
    assert "pid" in first["summary"] and "stranger.service" in first["remedy"]
    effects = {f["code"] for f in document["findings"] if f["caused_by"] == 0}
    assert effects & {"PD201", "PD203", "PD502"}
    serving.heal()


@pytest.mark.slow
def test_a_decode_that_cannot_reach_its_prefill_is_told_from_one_that_is_down(
    serving: Fleet, hosts: list[LabHost], lab: Lab
) -> None:
    """pdctl itself comes through its own connection, so only the decode's host can tell."""
    lab.net.port("h1", 21002)
    hosts[1].sh(f"systemctl restart --no-block {DECODE}")
    until(lambda: "PD302" in serving.codes(), 60.0, "the way is named")
    finding = serving.codes()["PD302"]
    assert finding["subject"] == "decode-0 -> prefill-0" and "10.77.0.11:21002" in finding["summary"]
    assert finding["hypotheses"] and "on h2" in finding["hypotheses"][0]["test"]
    lab.net.heal()
    serving.heal()


SNATCH = """
import socket, time
while True:
    try:
        s = socket.create_server(('0.0.0.0', 21003))
        break
    except OSError:
        time.sleep(0.02)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_co_restart_proves_what_is_gone_on_every_host_and_holds_at_what_is_not(
    serving: Fleet, hosts: list[LabHost]
) -> None:
    done = serving.pdctl("restart", "--co", "a", "--yes", "--json")
    proof = json.loads(done.stdout)["cells"][0]["proof"]
    assert len(proof) == 2 and all("2 processes gone, ports 2100" in line for line in proof)
    hosts[1].sh(f"systemd-run --unit=stranger --uid=dev python3 -c {shlex.quote(SNATCH)}")
    try:
        cell = json.loads(serving.pdctl("restart", "--co", "a", "--yes", "--json").stdout)["cells"][0]
    finally:
        hosts[1].sh("systemctl stop stranger")
    assert cell["failed_at"] == "prove" and "decode-0: port 21003, held by pid" in cell["reason"]
    assert "stranger.service" in cell["reason"]
    serving.heal()
