"""`pdctl check` on two real hosts: what is wrong is one line that names it, and the rest is still told."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from pdctl import contracts
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.check import transfer as check_transfer
from pdctl.flows.check.hosts import HostState, look
from pdctl.flows.check.reach import walk, ways
from pdctl.flows.check.report import CheckReport, Level, Line
from pdctl.flows.check.run import check
from pdctl.flows.context import Context
from pdctl.flows.init import Remote, Wanted, init_fleet
from tests.hosts.lab import netns
from tests.hosts.lab.host import LabHost, until
from tests.hosts.lab.lab import Lab
from tests.hosts.lab.shell import sh

EDGE = "prefill-0 -> decode-0"
LISTEN = "import socket,time; s=socket.create_server(('{address}',{port})); time.sleep(600)"


@dataclass
class Fleet:
    """A prefill and the router on h1, a decode on h2; nothing is deployed."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "fleet.toml"

    def edit(self, old: str, new: str) -> None:
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))

    def context(self) -> Context:
        return Context(load_fleet(self.path))

    def check(self, transfer: float | None = None) -> CheckReport:
        with self.context() as ctx:
            return check(ctx, transfer)


@pytest.fixture
def fleet(hosts: list[LabHost], home: Path, host_python: str, tmp_path: Path) -> Fleet:
    model = next((home / ".cache/pdctl/models/").glob("smollm2-135m"))
    remotes = tuple(Remote(h.name, h.name, h.address) for h in hosts[:2])
    folder = tmp_path / "fleet"
    init_fleet(folder / "fleet.toml", Wanted("chk", str(model.resolve()), hosts=remotes))
    made = Fleet(folder)
    made.edit('transport = "ssh"\n', f'transport = "ssh"\nruntime = "existing"\npython = "{host_python}"\n')
    return made


def lines(report: CheckReport, check: str, subject: str = "") -> list[Line]:
    return [li for li in report.lines if li.check == check and subject in ("", li.subject)]


def bad(report: CheckReport) -> list[Line]:
    return [li for li in report.lines if li.level >= Level.WARN]


@contextlib.contextmanager
def stranger(host: LabHost, address: str, port: int, user: str = "dev") -> Iterator[str]:
    """A process that is not the fleet's listens there, as a transient service."""
    code = LISTEN.format(address=address, port=port)
    host.sh(f'systemd-run --unit=stranger --uid={user} python3 -c "{code}"')
    try:
        until(lambda: host.sh(f"ss -Hltn 'sport = :{port}'"), what="the stranger listens")
        yield host.sh("systemctl show -P MainPID stranger").strip()
    finally:
        host.sh("systemctl stop stranger")


def test_two_healthy_hosts_before_the_first_deploy(fleet: Fleet, hosts: list[LabHost]) -> None:
    there = "ls -d /opt/pdctl* /opt/pdctl/* /tmp/tmp.* 2>/dev/null || true"
    before = [host.sh(there) for host in hosts[:2]]
    report = fleet.check(transfer=60.0)
    assert not bad(report) and report.exit() is Exit.OK, bad(report)
    asked = {li.check for li in report.lines}
    assert asked >= {
        *("python", "disk", "shm", "memlock", "model", "clock", "ports", "numa", "ucx"),
        *("versions", "fingerprint", "address", "mtu", "transfer"),
    }
    (moved,) = lines(report, "transfer", EDGE)
    assert moved.level is Level.OK and "every byte right" in moved.found
    (mtu,) = lines(report, "mtu")
    assert "full packets pass both ways" in mtu.found
    for line in lines(report, "address"):
        assert "a listener of pdctl's answered" in line.found
    assert [host.sh(there) for host in hosts[:2]] == before, "it changes nothing"


def test_a_port_that_a_stranger_holds_is_named_with_its_holder(fleet: Fleet, hosts: list[LabHost]) -> None:
    with stranger(hosts[0], "0.0.0.0", 21001) as pid:
        report = fleet.check()
        (line,) = bad(report)
        assert (line.subject, line.check, line.level) == ("prefill-0", "ports", Level.FAIL)
        assert f"21001 held by pid {pid} of dev (" in line.found and "stranger.service" in line.found
        assert "systemctl stop stranger.service on h1" in line.fix
        assert report.exit() is Exit.FINDINGS


@pytest.mark.parametrize(("login", "seen"), [("ops", True), ("dev", False)], ids=["sudo", "no sudo"])
def test_without_root_the_holder_is_seen_with_sudo_and_its_user_in_any_case(
    fleet: Fleet, hosts: list[LabHost], login: str, seen: bool
) -> None:
    own = f'scope = "user"\nroot = "/home/{login}/pdctl"\n' if login == "dev" else ""
    fleet.edit('ssh = "h1"\n', f'ssh = "h1"\nuser = "{login}"\n{own}')
    with stranger(hosts[0], "0.0.0.0", 21001, user="root") as pid:
        (line,) = lines(fleet.check(), "ports", "prefill-0")[:1]
    assert line.level is Level.FAIL
    assert (f"pid {pid} of root" in line.found) is seen
    assert ("a process of root that cannot be seen without root" in line.found) is not seen


def test_a_port_held_at_another_address_is_as_good_as_free(fleet: Fleet, hosts: list[LabHost]) -> None:
    with stranger(hosts[0], "127.0.0.1", 21001):
        assert not bad(fleet.check())


def test_a_full_disk_fails_and_a_broken_python_too(fleet: Fleet, hosts: list[LabHost]) -> None:
    hosts[1].sh("mkdir -p /srv/small && mount -t tmpfs -o size=2M tmpfs /srv/small")
    fleet.edit('ssh = "h2"\n', 'ssh = "h2"\nroot = "/srv/small/pdctl"\n')
    text = fleet.path.read_text()
    head, _, tail = text.rpartition('python = "/srv/app/bin/python"')
    fleet.path.write_text(f'{head}python = "/nowhere/python"{tail}')
    try:
        report = fleet.check()
    finally:
        hosts[1].sh("umount /srv/small")
    (disk,), (python,) = lines(report, "disk", "h2"), lines(report, "python", "h2")
    assert disk.level is Level.FAIL and disk.found.startswith("2.0 MiB of 2.0 MiB free")
    assert python.level is Level.FAIL and "/nowhere/python: No such file" in python.found
    assert {li.subject for li in bad(report)} == {"h2"}, "and everything else is known all the same"


def test_a_prefill_that_advertises_loopback_to_another_host_is_caught(fleet: Fleet, tmp_path: Path) -> None:
    """An engine of this machine keeps its default address when a host over SSH joins the fleet."""
    text = fleet.path.read_text()
    local = f'[hosts.h1]\ntransport = "local"\npython = "{sys.executable}"\nroot = "{tmp_path}/root"\n\n'
    start, end = text.index("[hosts.h1]"), text.index("[hosts.h2]")
    fleet.path.write_text(text[:start] + local + text[end:])
    report = fleet.check(transfer=10.0)
    assert {(li.subject, li.check) for li in bad(report)} == {("h2 -> prefill-0", "address")}
    (line,) = bad(report)
    assert line.found == "127.0.0.1 leads h2 to itself" and "hosts.h1.address" in line.fix
    assert lines(report, "transfer", EDGE)[0].level is Level.SKIP


def test_a_host_whose_own_name_is_loopback_is_caught(fleet: Fleet, hosts: list[LabHost]) -> None:
    """As Debian's installer writes /etc/hosts: the others reach it by that name, its engine never listens."""
    fleet.edit(f'address = "{hosts[0].address}"', 'address = "h1"')
    hosts[0].sh("cp /etc/hosts /etc/hosts.was && sed -i 's/^.*\\bh1$/127.0.1.1 h1/' /etc/hosts")
    try:
        assert hosts[0].sh("getent ahostsv4 h1").startswith("127.0.1.1")
        found = {(li.subject, li.check): li.found for li in bad(fleet.check())}
    finally:
        hosts[0].sh("mv /etc/hosts.was /etc/hosts")
    assert found == {("h2 -> prefill-0", "address"): found["h2 -> prefill-0", "address"]}
    assert "h1 is 127.0.1.1 on h1 itself" in found["h2 -> prefill-0", "address"]


def test_an_address_that_no_host_has_is_one_line(fleet: Fleet, hosts: list[LabHost]) -> None:
    fleet.edit(f'address = "{hosts[0].address}"', 'address = "10.77.0.99"')
    report = fleet.check(transfer=10.0)
    assert [li.check for li in bad(report) if li.subject == "h1"] == ["address"]
    assert "no interface of this host has that address" in lines(report, "address", "h1")[0].found


def test_a_blocked_port_is_told_from_the_ones_that_pass(fleet: Fleet, lab: Lab) -> None:
    lab.net.port("h1", 21002)
    report = fleet.check()
    (line,) = bad(report)
    assert (line.subject, line.check) == ("h2 -> prefill-0", "address")
    assert line.found == "10.77.0.11:21002: no answer"


def test_a_smaller_mtu_on_one_side_is_seen_and_tried(fleet: Fleet, hosts: list[LabHost]) -> None:
    hosts[0].sh("ip link set eth0 mtu 1400")
    try:
        (line,) = bad(fleet.check())
    finally:
        hosts[0].sh("ip link set eth0 mtu 1500")
    assert line.check == "mtu" and "h2 eth0 1500, h1 eth0 1400" in line.found
    assert "full packets vanish h2 -> h1" in line.found


def test_a_host_that_is_away_is_one_line_and_the_rest_goes_on(fleet: Fleet, lab: Lab) -> None:
    lab.crash("h2")
    report = fleet.check()
    (line,) = bad(report)
    assert (line.subject, line.check) == ("h2", "host") and report.exit() is Exit.UNREACHABLE
    assert len(lines(report, "ports", "prefill-0")) == 2
    with stranger(lab.hosts[0], "0.0.0.0", 21001):
        assert fleet.check().exit() is Exit.PARTIAL


def sent(host: LabHost) -> int:
    (link,) = json.loads(host.sh("ip -s -j link show eth0"))
    return int(link["stats64"]["tx"]["bytes"])


@pytest.mark.slow
def test_a_transfer_over_a_path_that_breaks_ends_at_its_own_deadline(fleet: Fleet, lab: Lab) -> None:
    """NIXL itself says nothing of a partition for minutes."""
    with fleet.context() as ctx:
        states = {h: s for h, s in look(ctx, {}).items() if isinstance(s, HostState)}
        walked = walk(ctx, states, ways(ctx.fleet, states))
        done: list[Line] = []
        transfer = partial(check_transfer.lines, ctx, states, walked, 20.0)
        worker = threading.Thread(target=lambda: done.extend(transfer()), daemon=True)
        lab.net.rate("h2", "20mbit")  # so that it takes long enough to be caught in the act
        before = sent(lab.hosts[1])
        worker.start()
        until(lambda: done or sent(lab.hosts[1]) > before + (2 << 20), 90.0, "the decode's host writes")
        assert not done, done[0].found
        lab.net.cut("h1", "h2")
        began = time.monotonic()
        worker.join(60.0)
        took = time.monotonic() - began
    (line,) = done
    assert line.level is Level.FAIL and "20 s" in line.wanted
    assert "h1: Out of time: it was to be written to by the peer" in line.found
    assert "h2: Out of time: it was to write to the peer" in line.found
    assert took < 25.0
    for host in lab.hosts[:2]:
        until(lambda host=host: not host.sh("pgrep -f '[e]ngine probe' || true"), 20.0, "no probe is left")
        assert not host.sh("ls -d /tmp/tmp.* 2>/dev/null || true"), "nor the code that came with it"


def test_json_is_one_document_with_the_exit_code_in_it(fleet: Fleet, hosts: list[LabHost]) -> None:
    argv = [sys.executable, "-m", "pdctl", "--fleet", str(fleet.path), "check", "--json", "--no-transfer"]
    with stranger(hosts[0], "0.0.0.0", 21001):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=fleet.folder)
    document = json.loads(done.stdout)
    assert contracts.faults("check", document) == []
    assert done.returncode == document["exit"] == Exit.FINDINGS and document["counts"]["fail"] == 1


def test_a_clock_that_is_off_and_a_small_shm_are_a_line_each(fleet: Fleet, hosts: list[LabHost]) -> None:
    h2 = hosts[1]
    shim = '#!/bin/sh\\nexec /bin/date -d "+40 seconds" "$@"\\n'
    h2.sh(f"printf '{shim}' >/usr/local/bin/date && chmod 755 /usr/local/bin/date")
    h2.sh("mount -o remount,size=4M /dev/shm")
    try:
        found = {(li.subject, li.check): li for li in bad(fleet.check())}
    finally:
        h2.sh("rm /usr/local/bin/date; mount -o remount,size=50% /dev/shm")
    assert set(found) == {("h2", "clock"), ("h2", "shm")}
    clock, shm = found["h2", "clock"], found["h2", "shm"]
    assert clock.found.startswith(("+40.", "+39.")) and "timedatectl set-ntp true on h2" in clock.fix
    assert shm.level is Level.FAIL and shm.found == "4.0 MiB of 4.0 MiB free"
    assert shm.wanted == "64.0 MiB free in /dev/shm" and "remount" in shm.fix


def test_a_firewall_that_knows_the_fleets_own_ports_alone_is_found(
    fleet: Fleet, hosts: list[LabHost], lab: Lab
) -> None:
    """A firewall that lets SSH, the fleet's own ports and nothing else in: control passes, UCX does not."""

    def firewall(words: str) -> None:
        for host in hosts[:2]:
            network = netns.path(lab.names.namespace(host.name))
            sh("nsenter", f"--net={network}", "nft", "-f", "-", input=words)

    ports = [22, *(port for unit in load_fleet(fleet.path).units() for port in unit.ports)]
    calls = "ip saddr != 10.77.0.1 tcp flags & (syn | ack) == syn"
    drops = f"{calls} tcp dport != {{ {', '.join(map(str, ports))} }} drop"
    firewall(f"table inet wall {{\nchain in {{\ntype filter hook input priority 0\n{drops}\n}}\n}}\n")
    try:
        report = fleet.check()
    finally:
        firewall("delete table inet wall")
    (line,) = bad(report)
    assert (line.subject, line.check, line.level) == ("h2 -> h1", "address", Level.FAIL)
    assert "of h1 is reached and another is not: no answer" in line.found, line
    assert "open every TCP port between h2 and h1" in line.fix and report.exit() is Exit.FINDINGS
