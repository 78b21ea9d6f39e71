"""The contract on this machine; tests/hosts holds SSH to the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from pdctl.transport.command import Command, Secret
from pdctl.transport.open import open_transport
from tests.pdctl.transport.contract import *  # noqa: F403
from tests.pdctl.transport.contract import There


@pytest.fixture
def there(tmp_path: Path) -> Iterator[There]:
    opened = open_transport(Host("here", HostTable(transport="local"), "/nowhere"))
    yield There(opened, sys.executable, str(tmp_path), Path)
    opened.close()


def test_a_secret_is_seen_by_nobody_but_the_transport() -> None:
    command = Command(("login", Secret("pa ss")), env={"TOKEN": Secret("tok")}, cwd="/a b")
    assert command.masked() == "cd '/a b' && env TOKEN='***' login '***'"
    assert command.raw() == ["login", "pa ss"]
    assert command.raw_env() == {"TOKEN": "tok"}
    assert "pa ss" not in repr(command) and "tok" not in repr(command)
