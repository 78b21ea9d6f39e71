"""Which login a host of the fleet file means, given what ~/.ssh/config says."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import ConfigError
from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from pdctl.transport.ssh import config
from pdctl.transport.ssh.config import Target, target


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(config, "_SYSTEM", (str(tmp_path / "none"), str(tmp_path / "global")))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def resolve(home: Path, text: str = "", **table: Any) -> Target:
    (home / ".ssh" / "config").write_text(text)
    spec = HostTable(**{"transport": "ssh", "address": "10.0.0.7", **table})
    return target(Host("gpu1", spec, "/opt/pdctl"))


def test_without_a_config_it_is_the_address_and_this_user(home: Path) -> None:
    found = resolve(home)
    assert (found.address, found.port, found.user) == ("10.0.0.7", 22, getpass.getuser())
    assert (found.known_name, found.identities, found.identities_only) == ("10.0.0.7", (), False)
    assert found.known_files[0] == f"{home}/.ssh/known_hosts"
    assert found.known_files[-1] == f"{home}/global"
    assert (found.connect_timeout, found.jump, found.proxy_command) == (10.0, None, None)


FULL = """
Host box
  HostName Real.Example
  User alice
  Port 2201
  IdentityFile ~/.ssh/work
  IdentityFile %d/.ssh/second
  IdentitiesOnly yes
  UserKnownHostsFile ~/.ssh/known_box /etc/other
  ConnectTimeout 3
Host *
  User nobody
"""


def test_the_config_fills_in_what_the_fleet_file_leaves_out(home: Path) -> None:
    found = resolve(home, FULL, ssh="box")
    assert (found.address, found.port, found.user) == ("Real.Example", 2201, "alice")
    assert found.known_name == "[real.example]:2201"
    assert found.identities == (f"{home}/.ssh/work", f"{home}/.ssh/second")
    assert found.identities_only
    assert found.known_files[:2] == (f"{home}/.ssh/known_box", "/etc/other")
    assert found.connect_timeout == 3.0


def test_the_fleet_file_wins(home: Path) -> None:
    key = home / "key"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    found = resolve(home, FULL, ssh="box", user="bob", port=22, identity_file="~/key")
    assert (found.user, found.port, found.identities) == ("bob", 22, (str(key),))
    assert found.known_name == "real.example"
    assert found.identities_only


def test_the_address_is_looked_up_when_there_is_no_alias(home: Path) -> None:
    assert resolve(home, "Host 10.0.0.*\n  User ops\n").user == "ops"


def test_an_alias_for_the_key_has_no_port(home: Path) -> None:
    found = resolve(home, "Host *\n  HostKeyAlias Farm\n  Port 2222\n")
    assert found.known_name == "farm"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("garbage", "is not a private key"),
        (None, "is a folder"),
        ("ssh-ed25519 AAAAC3Nz ann@desk", "is a public key, not the private one"),
    ],
)
def test_a_named_file_that_is_no_key_is_a_sentence_before_any_login(
    home: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, words: str
) -> None:
    file = home / "named"
    file.mkdir() if content is None else file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        resolve(home, identity_file="~/named")
    assert caught.value.message == f"hosts.gpu1.identity_file: {file} {words}."
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    text = "Host box\n  IdentityFile ~/named\n"
    with pytest.raises(ConfigError) as caught:
        resolve(home, text, ssh="box")
    assert caught.value.message == f"{home}/.ssh/config: IdentityFile of box: {file} {words}."
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    assert resolve(home, text, ssh="box").identities == (str(file),), "the agent may have another key"


def test_a_missing_identity_file_is_a_sentence(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(home, identity_file="~/absent")
    assert caught.value.message == f"hosts.gpu1.identity_file: there is no {home}/absent."


def test_a_chain_of_jumps_is_walked_from_the_first(home: Path) -> None:
    text = """
Host box
  ProxyJump carol@first:2200,second
Host first
  HostName first.example
Host second
  HostName 10.1.1.2
  User dave
"""
    found = resolve(home, text, ssh="box")
    assert found.jump and found.jump.jump and found.jump.jump.jump is None
    assert (found.jump.address, found.jump.user, found.jump.port) == ("10.1.1.2", "dave", 22)
    first = found.jump.jump
    assert (first.address, first.user, first.port) == ("first.example", "carol", 2200)


def test_a_jump_has_a_jump_of_its_own(home: Path) -> None:
    found = resolve(home, "Host box\n  ProxyJump mid\nHost mid\n  ProxyJump [fe80::1]:2200\n", ssh="box")
    assert found.jump and found.jump.jump
    assert (found.jump.jump.address, found.jump.jump.port) == ("fe80::1", 2200)


@pytest.mark.parametrize("word", ["none", "None"])
def test_none_switches_a_jump_off(home: Path, word: str) -> None:
    text = f"Host box\n  ProxyJump {word}\n  ProxyCommand none\nHost *\n  ProxyJump bastion\n"
    found = resolve(home, text, ssh="box")
    assert (found.jump, found.proxy_command) == (None, None)


def test_a_proxy_command_has_its_words_filled_in(home: Path) -> None:
    found = resolve(home, "Host box\n  HostName b.example\n  ProxyCommand nc %h %p\n", ssh="box")
    assert found.proxy_command == "nc b.example 22"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n", "ProxyJump of b leads back to a."),
        ("Host a\n  Port ssh\n", "port of a is 'ssh', which is not a number."),
        ("Host a\n  ConnectTimeout 1m\n", "connecttimeout of a is '1m', which is not a number."),
        ("Host a\n  ProxyJump x@\n", "ProxyJump x@ of a is not readable."),
        ("Host a\n  nonsense\n", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_a_sentence_with_the_file(home: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(home, text, ssh="a")
    assert caught.value.code == "ssh_config"
    assert said in caught.value.message and f"{home}/.ssh/config" in caught.value.message


def test_a_command_decides_whether_a_block_counts(home: Path) -> None:
    text = 'Match exec "test %h = 10.0.0.7"\n  User yes\nMatch exec "test %h = other"\n  Port 9\n'
    found = resolve(home, text)
    assert (found.user, found.port) == ("yes", 22)


def test_included_files_stand_where_they_are_included(home: Path) -> None:
    folder = home / ".ssh" / "conf.d"
    folder.mkdir()
    (folder / "1.conf").write_text("Host box\n  User included\n")
    (folder / "2.conf").write_text("Host other\n  Port 9\n")
    text = "Include conf.d/*.conf\nHost box\n  User late\n  Port 5\n"
    found = resolve(home, text, ssh="box")
    assert (found.user, found.port) == ("included", 5)


def test_a_block_goes_on_after_an_include(home: Path) -> None:
    (home / ".ssh" / "more").write_text("Host somebody-else\n  User wrong\n")
    text = "Host box\n  Include more\n  User right\n"
    assert resolve(home, text, ssh="box").user == "right"
    assert resolve(home, text, ssh="third").user == getpass.getuser()


def test_a_file_that_includes_itself_ends(home: Path) -> None:
    assert resolve(home, "Include config\nHost *\n  User me\n").user == "me"
