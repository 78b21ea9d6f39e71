"""Who is let in, and what is said when nobody is: keys, host keys, jumps, sudo, login shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import ConfigError, PdctlError, UnreachableError
from pdctl.transport.base import Transport
from pdctl.transport.command import Command
from pdctl.transport.open import open_transport
from tests.hosts.lab.disk import make_key
from tests.hosts.lab.host import LabHost
from tests.hosts.lab.lab import Lab
from tests.hosts.operator_home import fleet_host, through_a_command
from tests.hosts.sshd import sshd
from tests.hosts.terminal import Terminal

# What Python 3.6 says to the first line of a program for a newer one.
OLD = "#!/bin/sh\\necho SyntaxError: future feature annotations is not defined >&2; exit 1\\n"
ID = Command(("id", "-un"))
Login = Callable[..., Transport]


@pytest.fixture
def login(hosts: list[LabHost], home: Path) -> Iterator[Login]:
    """A transport to `name` with the keys of its host table."""
    opened: list[Transport] = []

    def make(name: str = "h1", **table: Any) -> Transport:
        address = next((host.address for host in hosts if host.name == name), "10.77.0.200")
        opened.append(open_transport(fleet_host(name, **{"address": address, **table})))
        return opened[-1]

    yield make
    for transport in opened:
        transport.close()


def refused(transport: Transport, command: Command = ID) -> PdctlError:
    with pytest.raises(PdctlError) as caught:
        transport.run(command, 20)
    return caught.value


def table(host: LabHost, **more: Any) -> dict[str, Any]:
    return {"address": host.address, **more}


# Host keys


def test_an_unknown_host_is_refused_until_its_key_is_added(login: Login, home: Path) -> None:
    (home / ".ssh" / "known_hosts").unlink()
    error = refused(login())
    assert isinstance(error, UnreachableError) and error.code == "host_key_unknown"
    assert "SHA256:" in error.message
    command = error.hint.rpartition("add it: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    assert login().run(ID, 20).text == "root\n"


def test_a_person_is_asked_once_about_an_unknown_host(hosts: list[LabHost], home: Path) -> None:
    (home / ".ssh" / "known_hosts").unlink()
    words = ("-m", "tests.hosts.login", json.dumps({"h1": table(hosts[0])}), "hostname")
    with Terminal(*words) as terminal:
        terminal.answer("Trust it? [yes/no]", "yes")
        assert terminal.end()[-1] == "h1 0 h1"
    with Terminal(*words) as again:
        assert again.end() == ["h1 0 h1"]
    with Terminal(*words[:2], json.dumps({"h2": table(hosts[1])}), "hostname") as other:
        other.answer("Trust it? [yes/no]", "no")
        assert other.end()[-1] == "h2 host_key_unknown"


def test_a_host_that_was_installed_anew_is_not_trusted(login: Login, lab: Lab, home: Path) -> None:
    assert login("h3").run(ID, 20).rc == 0
    lab.wipe("h3")
    error = refused(login("h3"))
    assert error.code == "host_key_changed"
    assert f"{home}/.ssh/known_hosts:3" in error.message
    command = error.hint.partition("with: ")[2]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    assert refused(login("h3")).code == "host_key_unknown"


def test_a_hashed_name_with_a_port_is_found(login: Login, hosts: list[LabHost], home: Path) -> None:
    key = (home / ".ssh" / "known_hosts").read_text().splitlines()[0].split()[1:]
    (home / ".ssh" / "known_hosts").write_text(f"[{hosts[0].address}]:2222 {' '.join(key)}\n")
    subprocess.run(
        ["ssh-keygen", "-q", "-H", "-f", str(home / ".ssh" / "known_hosts")], check=True, capture_output=True
    )
    found = login(ssh=hosts[0].address, port=2222, user="root", identity_file="~/.ssh/lab_key")
    with sshd(hosts[0], 2222):
        assert found.run(ID, 20).text == "root\n"


def test_a_host_with_several_keys_is_known_by_any_of_them(
    login: Login, hosts: list[LabHost], home: Path
) -> None:
    """sshd offers its ed25519 key first; known_hosts has the other one only."""
    key = "/etc/ssh/second_key"
    hosts[0].sh(f"test -e {key} || ssh-keygen -q -t ecdsa -N '' -f {key}")
    public = " ".join(hosts[0].sh(f"cat {key}.pub").split()[:2])
    (home / ".ssh" / "known_hosts").write_text(f"h1 {public}\n")
    with sshd(hosts[0], 2223, f"HostKey={key}"):
        assert login(port=2223).run(ID, 20).text == "root\n"


# Keys


def test_a_user_who_is_not_let_in_is_told_what_was_tried(login: Login, home: Path) -> None:
    error = refused(login(user="nobody"))
    assert (error.code, error.exit) == ("auth_failed", 5)
    assert "nobody@10.77.0.11" in error.message
    assert error.details == (f"tried: {home}/.ssh/lab_key",)


def lock_key(home: Path, passphrase: str = "open sesame") -> Path:
    """The only key of this operator is an encrypted copy of the right one."""
    key = home / ".ssh" / "lab_key"
    words = ("ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", str(key))
    subprocess.run(words, check=True, capture_output=True)
    return key


def test_an_encrypted_key_without_a_person_is_a_sentence(login: Login, home: Path) -> None:
    key = lock_key(home)
    error = refused(login())
    assert error.code == "key_locked"
    assert str(key) in error.message and f"ssh-add {key}" in error.hint


def test_an_encrypted_key_is_asked_for_once_for_all_hosts(hosts: list[LabHost], home: Path) -> None:
    key = lock_key(home)
    tables = json.dumps({host.name: table(host) for host in hosts})
    with Terminal("-m", "tests.hosts.login", tables, "hostname") as terminal:
        terminal.answer(f"Passphrase of {key}:", "open sesame")
        lines = terminal.end()
    assert lines[-3:] == ["h1 0 h1", "h2 0 h2", "h3 0 h3"]
    assert terminal.said.count("Passphrase of") == 1
    assert "open sesame" not in terminal.said


def test_an_interrupted_question_gives_the_terminal_back(hosts: list[LabHost], home: Path) -> None:
    key = lock_key(home)
    with Terminal("-m", "tests.hosts.login", json.dumps({"h1": table(hosts[0])}), "true") as terminal:
        assert terminal.echoes
        terminal.answer(f"Passphrase of {key}:", "\x03")
        assert "KeyboardInterrupt" in terminal.end()[-1]
        assert terminal.echoes


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    socket = str(tmp_path / "agent")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", socket)
    try:
        subprocess.run(["sh", "-c", f"until test -S {socket}; do sleep 0.01; done"], timeout=10, check=True)
        yield
    finally:
        process.kill()
        process.wait()


def test_the_agent_logs_in_when_no_file_does(login: Login, home: Path, lab: Lab, agent: None) -> None:
    config = home / ".ssh" / "config"
    text = "".join(line for line in config.read_text().splitlines(True) if "Identit" not in line)
    config.write_text(text)
    assert refused(login()).code == "auth_failed"
    subprocess.run(["ssh-add", "-q", str(lab.key)], check=True)
    assert login().run(ID, 20).text == "root\n"


def test_an_encrypted_key_that_the_agent_holds_is_not_asked_for(
    login: Login, home: Path, lab: Lab, agent: None
) -> None:
    """Also with IdentitiesOnly, as for OpenSSH."""
    shutil.copy(f"{lab.key}.pub", home / ".ssh" / "lab_key.pub")
    subprocess.run(["ssh-add", "-q", str(home / ".ssh" / "lab_key")], check=True)
    lock_key(home)
    assert login().run(ID, 20).text == "root\n"


def test_a_default_key_is_found(login: Login, home: Path, lab: Lab) -> None:
    (home / ".ssh" / "config").unlink()
    known = (home / ".ssh" / "known_hosts").read_text()
    assert "h1,10.77.0.11" in known
    make_key(home / ".ssh" / "id_rsa", "wrong one")
    shutil.copy(lab.key, home / ".ssh" / "id_ecdsa")
    assert login(ssh="10.77.0.11", user="root").run(ID, 20).text == "root\n"


# The way there


def test_a_host_is_reached_through_another(login: Login, lab: Lab, home: Path) -> None:
    lab.net.cut("ctl", "h2")
    config = home / ".ssh" / "config"
    config.write_text(f"Host h2\n  ProxyJump ops@h1\n{config.read_text()}")
    found = login("h2", user="ops")
    assert found.run(Command(("hostname",)), 20).text == "h2\n"
    assert found.run(ID, 20).text == "ops\n"
    with found.dial("127.0.0.1", 22) as link:
        assert link.recv(4) == b"SSH-"


def test_a_chain_of_jumps(login: Login, lab: Lab, home: Path) -> None:
    lab.net.cut("ctl", "h2")
    lab.net.cut("ctl", "h3")
    lab.net.cut("h1", "h3")
    config = home / ".ssh" / "config"
    config.write_text(f"Host h3\n  ProxyJump h1,h2\n{config.read_text()}")
    assert login("h3").run(Command(("hostname",)), 20).text == "h3\n"


def test_a_jump_host_that_does_not_reach_the_host_is_a_sentence(login: Login, home: Path) -> None:
    config = home / ".ssh" / "config"
    config.write_text(f"Host h2\n  ProxyJump h1\n  Port 2\n{config.read_text()}")
    error = refused(login("h2"))
    assert error.code == "ssh_jump"
    assert "h2 (root@10.77.0.12 port 2)" in error.message


def test_a_proxy_command_is_used(login: Login, home: Path) -> None:
    through_a_command(home, "h1")
    assert login().run(ID, 20).text == "root\n"


@pytest.mark.parametrize(
    ("code", "table"),
    [
        ("ssh_refused", {"port": 1}),
        ("unknown_name", {"ssh": "no-such-name.invalid"}),
        ("ssh_unreachable", {"ssh": "192.0.2.1"}),
    ],
)
def test_each_way_not_to_get_there_has_its_code(login: Login, code: str, table: dict[str, Any]) -> None:
    error = refused(login(**table))
    assert (error.code, error.exit) == (code, 5)
    assert error.hint


def test_a_host_that_does_not_answer_costs_no_more_than_was_allowed(
    login: Login, lab: Lab, home: Path
) -> None:
    lab.crash("h2")
    config = home / ".ssh" / "config"
    config.write_text(f"ConnectTimeout 1\n{config.read_text()}")
    assert refused(login("h2")).code == "ssh_timeout"


def test_something_else_than_sshd_is_told_apart(login: Login, hosts: list[LabHost]) -> None:
    hosts[0].sh("systemd-run --unit=notssh --service-type=simple python3 -m http.server 2224 --bind 0.0.0.0")
    hosts[0].sh("until ss -ltn | grep -q :2224; do sleep 0.02; done")
    error = refused(login(port=2224))
    assert error.code in ("ssh_dropped", "ssh_handshake")
    hosts[0].sh("systemctl stop notssh")


# What the login may do, and in which shell


def test_root_runs_and_writes_through_sudo(login: Login, hosts: list[LabHost]) -> None:
    ops = login(user="ops")
    assert ops.run(ID, 20).text == "ops\n"
    assert ops.run(
        Command(("sh", "-c", "id -un; echo $A; cat"), {"A": "b"}, stdin=b"in", root=True), 20
    ).text == ("root\nb\nin")
    ops.put(b"unit", "/etc/systemd/system/x.service", 0o640, root=True)
    file = hosts[0].root / "etc/systemd/system/x.service"
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (0, 0o640)
    with pytest.raises(ConfigError) as caught:
        ops.get("/etc/systemd/system/x.service")
    assert caught.value.code == "cannot_read"
    assert ops.get("/etc/systemd/system/x.service", root=True) == b"unit"
    assert ops.run(Command(("sleep", "60"), root=True), 0.5).timed_out
    assert hosts[0].sh("pgrep -c '^sleep$' || true").strip() == "0"


def test_sudo_that_wants_a_password_is_a_sentence(login: Login, hosts: list[LabHost]) -> None:
    dev = login(user="dev")
    error = refused(dev, Command(("id",), root=True))
    assert (error.code, error.exit) == ("sudo_refused", 2)
    assert "NOPASSWD" in error.hint
    hosts[0].sh("echo 'dev ALL=(ALL) ALL' >/etc/sudoers.d/dev")
    again = refused(dev, Command(("id",), root=True))
    assert again.code == "sudo_refused" and "a password is required" in again.message
    assert dev.run(ID, 20).text == "dev\n"
    hosts[0].sh("rm /etc/sudoers.d/dev")


def test_a_root_login_needs_no_sudo(login: Login, hosts: list[LabHost]) -> None:
    hosts[0].sh("chmod 0 /usr/bin/sudo")
    try:
        assert login().run(Command(("id", "-un"), root=True), 20).text == "root\n"
    finally:
        hosts[0].sh("chmod 4755 /usr/bin/sudo")


def test_a_login_shell_that_talks_does_not_spoil_results(login: Login, hosts: list[LabHost]) -> None:
    noise = "echo Welcome; printf '\\\\000\\\\001\\\\377'; echo oh no >&2"
    hosts[0].sh(f'cp ~dev/.bashrc /tmp/kept; echo "{noise}" | cat - /tmp/kept >~dev/.bashrc')
    try:
        result = login(user="dev").run(Command(("sh", "-c", "echo out; echo err >&2")), 20)
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    finally:
        hosts[0].sh("cp /tmp/kept ~dev/.bashrc")


@pytest.mark.parametrize("shell", ["/bin/tcsh", "/bin/dash"])
def test_any_login_shell_does(login: Login, hosts: list[LabHost], shell: str) -> None:
    hosts[0].sh(f"usermod -s {shell} dev")
    try:
        command = Command(("printf", "%s|", "a'b", '"c"', "$d", "e!f", "g\\h"), {"X": "y z"})
        assert login(user="dev").run(command, 20).text == 'a\'b|"c"|$d|e!f|g\\h|'
    finally:
        hosts[0].sh("usermod -s /bin/bash dev")


def test_a_user_without_a_shell_is_a_sentence(login: Login, hosts: list[LabHost]) -> None:
    hosts[0].sh("usermod -s /usr/sbin/nologin dev")
    try:
        error = refused(login(user="dev"))
        assert error.code == "ssh_shell"
        assert "This account is currently not available." in error.details
    finally:
        hosts[0].sh("usermod -s /bin/bash dev")


def test_a_host_without_python_is_a_sentence_and_the_one_it_has_is_used(
    login: Login, hosts: list[LabHost]
) -> None:
    hosts[0].sh("mv /usr/bin/python3 /usr/bin/hidden")
    try:
        error = refused(login())
        assert (error.code, error.exit) == ("no_python", 2)
        assert login(python="/usr/bin/python3.11").run(ID, 20).text == "root\n"
        hosts[0].sh(f"printf '{OLD}' >/usr/bin/python3; chmod 755 /usr/bin/python3")
        assert refused(login()).code == "old_python"
        assert login(python="/usr/bin/python3.11").run(ID, 20).text == "root\n"
    finally:
        hosts[0].sh("mv /usr/bin/hidden /usr/bin/python3")


def test_many_hosts_and_many_processes_get_in_although_sshd_drops_some(
    hosts: list[LabHost], home: Path
) -> None:
    """MaxStartups is as on any server: beyond ten that have not logged in yet, some are dropped."""
    tables = json.dumps({f"n{number}": table(hosts[0], ssh="h1") for number in range(12)})
    words = [sys.executable, "-m", "tests.hosts.login", tables, "echo", "in"]
    runs = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(2)]
    for run in runs:
        said, _ = run.communicate(timeout=60)
        assert said.splitlines() == [f"n{number} 0 in" for number in range(12)]
