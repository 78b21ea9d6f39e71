"""The test hosts are what the other tests take them for."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.hosts.lab import cgroups, wiring
from tests.hosts.lab.host import LabHost, until
from tests.hosts.lab.lab import Lab
from tests.hosts.lab.names import Names
from tests.hosts.lab.shell import LabError


def network() -> int:
    return os.stat(f"/proc/self/task/{threading.get_native_id()}/ns/net").st_ino


MACHINE = network()


def test_a_test_with_hosts_is_on_their_network(hosts: list[LabHost]) -> None:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(network()))
    thread.start()
    thread.join()
    child = subprocess.run(["readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=True)
    assert network() != MACHINE
    assert seen == [network()] and child.stdout.strip() == f"net:[{network()}]"
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 5).close()


def test_a_test_without_hosts_is_on_the_machine(lab: Lab) -> None:
    assert network() == MACHINE


def rtt(source: LabHost, target: LabHost, count: int = 1) -> float | None:
    """Milliseconds of the last answer; None when nothing comes back."""
    code, said = source.try_sh(f"ping -q -i 0.05 -c {count} -W 1 {target.address}")
    found = re.search(r"= [\d.]+/([\d.]+)/", said)
    return float(found[1]) if code == 0 and found else None


def test_hosts_are_machines_of_their_own(hosts: list[LabHost]) -> None:
    for what in ("cat /etc/machine-id", "cat /proc/sys/kernel/random/boot_id", "hostname"):
        assert len({host.sh(what) for host in hosts}) == len(hosts), what
    assert rtt(hosts[0], hosts[1]) is not None
    assert hosts[0].sh("systemctl show -p Version --value")
    assert hosts[0].sh("systemctl is-active ssh", user="ops") == "active\n"


def test_network_faults_are_real_and_heal(hosts: list[LabHost], lab: Lab) -> None:
    h1, h2, h3 = hosts
    lab.net.cut("h1", "h2")
    assert rtt(h1, h2) is None and rtt(h2, h1) is None and rtt(h1, h3) is not None
    lab.net.heal()
    lab.net.delay("h1", "h2", 30)
    assert (rtt(h1, h2) or 0) > 55 and (rtt(h1, h3) or 99) < 50
    lab.net.heal()
    lab.net.link("h3", up=False)
    assert rtt(h1, h3) is None
    lab.net.heal()
    lab.net.port("h1", 22)
    with pytest.raises(TimeoutError):
        socket.create_connection((h1.address, 22), 0.5)
    lab.net.heal()
    lab.net.loss("h1", "h2", 50)
    said = h1.try_sh(f"ping -q -i 0.005 -c 100 -W 1 {h2.address}")[1]
    lost = float(re.search(r"([\d.]+)% packet loss", said)[1])  # type: ignore[index]
    assert 40 < lost < 98
    lab.net.heal()
    assert rtt(h1, h2) is not None and (rtt(h1, h2) or 99) < 20


def test_a_crash_says_nothing_and_the_disk_stays(hosts: list[LabHost], lab: Lab) -> None:
    h2 = hosts[1]
    h2.sh("echo kept >/srv/kept; systemd-run -q --unit=listen python3 -m http.server 8000")
    until(lambda: h2.sh("ss -ltnH").count(":8000"), 20)
    with socket.create_connection((h2.address, 8000), 5) as link:
        lab.crash("h2")
        link.settimeout(0.5)
        with pytest.raises(TimeoutError):
            link.recv(1)
    lab.boot("h2")
    assert h2.sh("cat /srv/kept") == "kept\n"


def test_a_reboot_from_inside_comes_back(hosts: list[LabHost]) -> None:
    h3 = hosts[2]
    before = h3.sh("cat /proc/sys/kernel/random/boot_id")
    h3.try_sh("systemctl reboot")

    def again() -> bool:
        try:
            code, now = h3.try_sh("cat /proc/sys/kernel/random/boot_id")
            return code == 0 and now != before and h3.booted()
        except LabError:  # it is off between its two lives
            return False

    until(again, 60, "h3 is back")


def test_a_frozen_host_takes_connections_and_answers_none(hosts: list[LabHost], lab: Lab) -> None:
    lab.freeze("h1")
    with socket.create_connection((hosts[0].address, 22), 5) as link:
        link.settimeout(0.5)
        with pytest.raises(TimeoutError):
            link.recv(1)
        lab.thaw("h1")
        link.settimeout(20)
        assert link.recv(4) == b"SSH-"


def test_a_limit_of_a_unit_is_enforced(hosts: list[LabHost]) -> None:
    def allocate(limit: str) -> int:
        unit = f"systemd-run -q --wait -p MemoryMax={limit} -p MemorySwapMax=0"
        return hosts[0].try_sh(f"{unit} python3 -c 'bytearray(200 << 20)'")[0]

    assert (allocate("1G"), allocate("50M") != 0) == (0, True)


def test_the_engine_libraries_load_for_everybody(hosts: list[LabHost], host_python: str) -> None:
    for user in ("root", "ops"):
        said = hosts[0].sh(f"{host_python} -c 'import torch, nixl; print(torch.__version__)'", user=user)
        assert re.fullmatch(r"\d+\.\d+.*\n", said)


GUARDED = """
import subprocess, sys, time
from pathlib import Path
from tests.hosts.lab.guard import guarded
from tests.hosts.lab.lab import Lab
lab = Lab(Path(sys.argv[1]), sys.argv[2], "10.79.0")
with open(sys.argv[3], "w") as lock, guarded(lab, lock.fileno()):
    lab.up(1)
    with lab.inside():
        print(subprocess.Popen(["sleep", "600"], stdout=2).pid, flush=True)
        time.sleep(600)
"""


def test_a_run_that_is_killed_leaves_neither_hosts_nor_children(lab: Lab, tmp_path: Path) -> None:
    names = Names(lab.names.base, f"g{lab.names.name[-7:]}", "10.79.0")
    words = [sys.executable, "-c", GUARDED, str(names.base), names.name, str(tmp_path / "lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as run:
        assert run.stdout is not None
        child = int(run.stdout.readline())
        assert cgroups.populated(names, "h1")
        run.send_signal(signal.SIGKILL)
    until(lambda: not names.dir.exists(), 20.0, "it is taken down")
    assert not list(cgroups.find(names)) and not wiring.namespaces(names)
    with contextlib.suppress(FileNotFoundError):
        assert "Z" in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2][:3]
