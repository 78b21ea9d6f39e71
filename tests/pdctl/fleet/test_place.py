"""What is found wrong with a key of a host after the fleet file was read names the file and the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Host
from pdctl.fleet.place import host_key
from pdctl.fleet.schema import HostTable
from pdctl.release.lock import Lock
from pdctl.release.runtime import Facts, existing, made
from pdctl.release.wheels import given_wheels
from pdctl.transport.ssh.config import target

Write = Callable[..., Path]
HOST = """[hosts.local]
transport = "ssh"
address = "10.0.0.7"
runtime = "wheelhouse"
wheels = "/nowhere"
identity_file = "/absent"
python = "/opt/py"
"""
REMOTE = (('path = "model"', 'path = "/model"'), ('[hosts.local]\ntransport = "local"\n', HOST))


@pytest.fixture
def path(write_fleet: Write) -> Path:
    return write_fleet(*REMOTE)


@pytest.fixture
def host(path: Path) -> Host:
    return load_fleet(path).hosts["local"]


def said(call: Callable[..., object], *args: object) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*args)
    return caught.value.message


def test_a_wheels_folder_that_is_not_there(path: Path, host: Host) -> None:
    message = said(given_wheels, Path("/nowhere"), Lock("tinya==1.0\n"), host_key(host, "wheels"))
    assert message == f"{path}:14: hosts.local.wheels: there is no folder /nowhere."


def test_an_identity_file_that_is_not_there(path: Path, host: Host) -> None:
    assert said(target, host) == f"{path}:15: hosts.local.identity_file: there is no /absent."


def test_a_python_that_engines_cannot_use(path: Path, host: Host) -> None:
    facts = Facts("/opt/py", "3.9.2", "x86_64", "2.36", {})
    start = f"{path}:16: hosts.local.python: /opt/py "
    assert said(made, facts, host, Lock("tinya==1.0\n")).startswith(f"{start}is Python 3.9.2;")
    assert said(existing, facts, host).startswith(f"{start}lacks ")


def test_a_key_that_is_left_out_is_at_its_table(write_fleet: Write) -> None:
    path = write_fleet(*REMOTE, ('python = "/opt/py"\n', ""))
    assert host_key(load_fleet(path).hosts["local"], "python") == f"{path}:10: hosts.local.python"


def test_a_host_of_no_fleet_file_has_no_place() -> None:
    assert host_key(Host("h1", HostTable(), "/opt/x"), "python") == "hosts.h1.python"
