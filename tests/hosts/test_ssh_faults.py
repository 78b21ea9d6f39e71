"""What breaks between pdctl and a host: it is noticed in time, told apart, and nothing goes on over there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, DeadlineError, PdctlError, UnreachableError
from pdctl.remote.fanout import begin
from pdctl.transport.base import Transport
from pdctl.transport.command import Command, Result, Secret
from pdctl.transport.far import calls
from pdctl.transport.open import open_transport
from tests.hosts.lab.host import LabHost, until
from tests.hosts.lab.lab import Lab
from tests.hosts.operator_home import fleet_host
from tests.hosts.sshd import sshd
from tests.pdctl.transport.contract import ECHO

# What the program over there has received so far.
OF_PDCTL = "$(find /proc/[0-9]*/fd -lname '/memfd:pdctl*' 2>/dev/null)"
# A shell with a child, both to be found by a number that nothing else has.
LONG = Command(("sh", "-c", "sleep 98765 & sleep 98765; :"))


@pytest.fixture
def h1(hosts: list[LabHost]) -> LabHost:
    return hosts[0]


@pytest.fixture
def ssh(h1: LabHost, home: Path) -> Iterator[Transport]:
    opened = open_transport(fleet_host("h1", h1.address, user="ops"))
    yield opened
    opened.close()


def running(host: LabHost) -> int:
    return int(host.try_sh("pgrep -fc '^sleep 98765'")[1])


def start(ssh: Transport, host: LabHost, root: bool = False) -> Future[Result]:
    """LONG on its way, and seen on the host."""
    future = begin(lambda: ssh.run(Command(LONG.argv, root=root), 300))
    until(lambda: running(host) == 2, 20, "the command runs")
    return future


def lost(future: Future[Result], within: float = 20.0) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        future.result(within)
    assert caught.value.code == "connection_lost"
    assert "h1" in caught.value.message and "sleep 98765" in caught.value.message
    return caught.value


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed in seconds, as it is in a quarter of a minute otherwise."""
    monkeypatch.setattr(calls, "SILENCE", 2.0)
    monkeypatch.setattr(calls, "PING_EVERY", 0.4)


# The connection goes


@pytest.mark.parametrize("root", [False, True])
def test_a_killed_sshd_is_not_a_failed_command(ssh: Transport, h1: LabHost, root: bool) -> None:
    future = start(ssh, h1, root)
    h1.sh("pkill -KILL -f '^sshd: ops'")
    lost(future)
    until(lambda: running(h1) == 0, 10, "the command ended with its connection")
    assert ssh.run(Command(("echo", "again")), 20).text == "again\n"


def test_a_partition_is_noticed_by_both_ends(ssh: Transport, h1: LabHost, lab: Lab, impatient: None) -> None:
    future = start(ssh, h1)
    lab.net.cut("ctl", "h1")
    cut = time.monotonic()
    error = lost(future)
    assert time.monotonic() - cut < 6
    assert "nothing was heard for 2 s" in error.message
    until(lambda: running(h1) == 0, 20, "the command ended while the host was cut off")
    lab.net.heal()
    assert ssh.run(Command(("echo", "again")), 20).text == "again\n"


def test_a_host_that_hangs_is_noticed(ssh: Transport, h1: LabHost, lab: Lab, impatient: None) -> None:
    future = start(ssh, h1)
    lab.freeze("h1")
    lost(future)
    lab.thaw("h1")
    until(lambda: running(h1) == 0, 20, "the command ended when the host came back to itself")


def test_a_host_that_hangs_is_not_waited_for_at_the_login(hosts: list[LabHost], lab: Lab, home: Path) -> None:
    config = home / ".ssh" / "config"
    config.write_text(f"ConnectTimeout 1\n{config.read_text()}")
    lab.freeze("h2")
    with pytest.raises(UnreachableError) as caught:
        open_transport(fleet_host("h2", hosts[1].address)).run(Command(("true",)), 30)
    assert caught.value.code == "ssh_timeout"


def test_a_power_failure_is_noticed(ssh: Transport, h1: LabHost, lab: Lab, impatient: None) -> None:
    future = start(ssh, h1)
    lab.crash("h1")
    lost(future)


def test_a_dead_host_costs_everybody_one_timeout_and_close_none(
    hosts: list[LabHost], lab: Lab, home: Path
) -> None:
    lab.crash("h2")
    config = home / ".ssh" / "config"
    config.write_text(f"ConnectTimeout 2\n{config.read_text()}")
    dead = open_transport(fleet_host("h2", hosts[1].address))
    began = time.monotonic()
    futures = [begin(lambda: dead.run(Command(("true",)), 60)) for _ in range(8)]
    dead.close()
    assert time.monotonic() - began < 2
    for future in futures:
        with pytest.raises(UnreachableError) as caught:
            future.result(20)
        assert caught.value.code == "ssh_timeout"
    assert time.monotonic() - began < 4


def test_many_uploads_to_a_host_that_hangs_all_come_back(ssh: Transport, lab: Lab, impatient: None) -> None:
    """Its kernel still takes bytes until it has no more room, and nobody may wait for that room for ever."""
    ssh.run(Command(("true",)), 20)
    lab.freeze("h1")
    futures = [begin(partial(ssh.put, bytes(30_000_000), f"/tmp/{n}", deadline=60)) for n in range(4)]
    for future in futures:
        with pytest.raises(UnreachableError):
            future.result(20)


def test_a_slow_link_is_no_silence(ssh: Transport, lab: Lab, impatient: None) -> None:
    """Three seconds in one direction are longer than a peer may be silent."""
    ssh.run(Command(("true",)), 20)
    lab.net.rate("h1", "4mbit")
    data = os.urandom(1_400_000)
    began = time.monotonic()
    ssh.put(data, "/tmp/slow", deadline=60)
    assert time.monotonic() - began > calls.SILENCE
    assert ssh.get("/tmp/slow", deadline=60) == data


def test_a_short_break_costs_nothing(ssh: Transport, lab: Lab) -> None:
    future = begin(lambda: ssh.run(Command(("sh", "-c", "sleep 2; echo done")), 60))
    lab.net.cut("ctl", "h1")
    time.sleep(1)
    lab.net.heal()
    assert future.result(20).text == "done\n"


def test_when_the_program_over_there_is_killed_dialled_sockets_live_on(ssh: Transport, h1: LabHost) -> None:
    with ssh.dial("127.0.0.1", 22) as link:
        future = start(ssh, h1)
        h1.sh("pkill -TERM -f 'exec.sys.stdin.buffer.read'")
        lost(future)
        until(lambda: running(h1) == 0, 10, "it ended what it had started")
        assert link.recv(4) == b"SSH-"
        assert ssh.run(Command(("echo", "again")), 20).text == "again\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_pdctl_is_the_end_of_its_commands(h1: LabHost, home: Path, number: int) -> None:
    table = json.dumps({"h1": {"address": h1.address, "user": "ops"}})
    words = [sys.executable, "-m", "tests.hosts.login", table, *map(str, LONG.raw())]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: running(h1) == 2, 20, "the command runs")
    process.send_signal(number)
    process.wait(20)
    until(lambda: running(h1) == 0, 10, "the command ended")


def test_an_interrupted_run_ends_alone(h1: LabHost, ssh: Transport) -> None:
    """Ctrl-C is for the command that somebody waits for; the connection and the others go on."""
    other = begin(lambda: ssh.run(Command(("sh", "-c", "sleep 2; echo other")), 60))
    main = threading.get_ident()

    def interrupt() -> None:
        until(lambda: running(h1) == 2, 20)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        ssh.run(LONG, 300)
    until(lambda: running(h1) == 0, 10, "the command ended")
    assert other.result(20).text == "other\n"


# Files


@pytest.fixture
def small_disk(h1: LabHost) -> Iterator[str]:
    h1.sh("mkdir -p /srv/small && mount -t tmpfs -o size=2M,mode=777 tmpfs /srv/small")
    yield "/srv/small"
    h1.sh("umount /srv/small")


def test_a_full_disk_is_a_sentence_and_leaves_the_old_file(
    ssh: Transport, h1: LabHost, small_disk: str
) -> None:
    ssh.put(b"old", f"{small_disk}/file")
    with pytest.raises(ConfigError) as caught:
        ssh.put(bytes(5_000_000), f"{small_disk}/file")
    assert caught.value.code == "cannot_write"
    assert caught.value.message == f"{small_disk}/file cannot be written on h1: No space left on device."
    assert h1.sh(f"ls -A {small_disk}; cat {small_disk}/file") == "file\nold"


def test_an_upload_that_breaks_off_leaves_nothing(ssh: Transport, h1: LabHost, lab: Lab) -> None:
    h1.sh("install -d -o ops /srv/ops")
    ssh.put(b"old", "/srv/ops/file")
    lab.net.rate("h1", "20mbit")
    future = begin(lambda: ssh.put(bytes(20_000_000), "/srv/ops/file", deadline=60))
    until(lambda: h1.sh(f"for fd in {OF_PDCTL}; do find -L $fd -size +1M; done"), 20, "some of it arrived")
    h1.sh("pkill -KILL -f '^sshd: ops'")
    with pytest.raises(UnreachableError):
        future.result(20)
    assert h1.sh("ls -A /srv/ops; cat /srv/ops/file") == "file\nold"


def test_an_upload_past_its_deadline_is_a_deadline(ssh: Transport, h1: LabHost, lab: Lab) -> None:
    ssh.run(Command(("true",)), 20)
    lab.net.rate("h1", "4mbit")
    with pytest.raises(DeadlineError):
        ssh.put(bytes(20_000_000), "/tmp/late", deadline=1.5)
    assert h1.sh("ls -A /tmp | grep late || true") == ""
    assert ssh.run(Command(("echo", "still")), 60).text == "still\n"


# Dialled sockets


def test_forwarding_that_sshd_forbids_is_said(h1: LabHost, home: Path) -> None:
    with sshd(h1, 2230, "AllowTcpForwarding=no"):
        strict = open_transport(fleet_host("h1", h1.address, port=2230))
        with pytest.raises(OSError, match="AllowTcpForwarding") as caught:
            strict.dial("127.0.0.1", 22)
        assert not isinstance(caught.value, (ConnectionRefusedError, TimeoutError))
        with pytest.raises(ConnectionRefusedError):
            strict.dial("127.0.0.1", 1)
        strict.close()


def test_a_peer_that_does_not_answer_times_out(ssh: Transport, hosts: list[LabHost], lab: Lab) -> None:
    ssh.run(Command(("true",)), 20)
    lab.net.cut("h1", "h2")
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        ssh.dial(hosts[1].address, 22, 1.0)
    assert time.monotonic() - began < 3


def test_a_dialled_socket_ends_when_the_connection_does(ssh: Transport, h1: LabHost) -> None:
    with ssh.dial("127.0.0.1", 22) as link:
        assert link.recv(4) == b"SSH-"
        h1.sh("pkill -KILL -f '^sshd: ops'")
        link.settimeout(10)
        while link.recv(4096):
            pass


def test_closing_a_dialled_socket_ends_what_the_peer_does_not_take(ssh: Transport, h1: LabHost) -> None:
    """As when a request to an engine that hangs has timed out: nothing of it may be left over here."""
    h1.sh(
        "systemd-run -q --unit=deaf python3 -c 'import socket, time\n"
        's = socket.create_server(("127.0.0.1", 7001)); time.sleep(600)\''
    )
    h1.sh("until ss -ltnH | grep -q :7001; do sleep 0.02; done")
    ssh.run(Command(("true",)), 20)
    threads = threading.active_count()
    for half_close in (True, False):
        link = ssh.dial("127.0.0.1", 7001)
        link.settimeout(1)
        with pytest.raises(TimeoutError):
            while True:
                link.sendall(bytes(1 << 20))
        if half_close:
            link.shutdown(socket.SHUT_WR)
        link.close()
    idle = ssh.dial("127.0.0.1", 7001)
    idle.shutdown(socket.SHUT_WR)
    idle.close()
    until(lambda: threading.active_count() <= threads, 20, "its threads ended")
    h1.sh("systemctl stop deaf")


def test_two_hundred_dials_leave_nothing_behind(ssh: Transport, h1: LabHost) -> None:
    ssh.put(ECHO.encode(), "/tmp/echo.py")
    h1.sh("systemd-run -q --unit=echo sh -c 'exec python3 /tmp/echo.py >/tmp/port'")
    until(lambda: h1.try_sh("cat /tmp/port")[1].strip().isdigit(), 20, "the server listens")
    port = int(h1.sh("cat /tmp/port"))

    def ask(number: int) -> bool:
        said = f"{number} " * 5000
        with ssh.dial("127.0.0.1", port, 30) as link:
            link.settimeout(30)
            link.sendall(said.encode())
            link.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: link.recv(65536), b"")).decode() == said[::-1]

    assert ask(0)
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(200) as pool:
        assert all(pool.map(ask, range(200)))
    until(lambda: threading.active_count() <= threads, 20, "its threads ended")
    until(lambda: len(os.listdir("/proc/self/fd")) <= files, 20, "its files were closed")
    h1.sh("systemctl stop echo")


# Secrets


def test_nobody_on_the_host_sees_a_secret(ssh: Transport, h1: LabHost) -> None:
    command = Command(
        ("sh", "-c", "sleep 98765 & sleep 98765; :"),
        env={"TOKEN": Secret("hush-hush")},
        stdin=b"hush-hush",
    )
    future = begin(lambda: ssh.run(command, 300))
    until(lambda: running(h1) == 2, 20)
    assert "hush-hush" not in h1.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "hush-hush" in h1.sh("cat /proc/$(pgrep -of '^sleep 98765')/environ | tr '\\0' ' '")
    assert h1.sh("journalctl --no-pager | grep -c hush-hush || true") == "0\n"
    h1.sh("pkill -KILL -f '^sshd: ops'")
    with pytest.raises(PdctlError) as caught:
        future.result(20)
    assert "hush-hush" not in str(caught.value.document())
