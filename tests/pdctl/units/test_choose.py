"""Which backend `units` and `scope` of a host mean."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import PdctlError
from pdctl.fleet.model import Host, HostPaths
from pdctl.fleet.schema import HostTable
from pdctl.transport.local import LocalTransport
from pdctl.units import choose, systemhost, systemtool
from pdctl.units.process import ProcessUnits
from pdctl.units.systemd import SystemdUnits


def opened(root: Path, **table: Any) -> object:
    spec = HostTable(**table)
    host = Host("here", spec, str(root))
    return choose.open_units(LocalTransport("here"), HostPaths(str(root)), host, "demo")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """systemd is PID 1, and who is logged in lingers, unless a test says otherwise."""
    facts: dict[str, Any] = {"booted": True, "uid": 0, "manager": True, "lingers": True}
    monkeypatch.setattr(systemhost, "booted", lambda: facts["booted"])
    monkeypatch.setattr(
        systemhost.Host, "answers", lambda host: facts["booted"] and (host.system or facts["manager"])
    )
    monkeypatch.setattr(systemtool, "lingers", lambda login: facts["lingers"])
    monkeypatch.setattr(os, "geteuid", lambda: facts["uid"])
    return facts


def scope(units: object) -> str:
    return units._scope if isinstance(units, SystemdUnits) else "process"


def test_auto_on_this_machine(machine: dict[str, Any], tmp_path: Path) -> None:
    assert scope(opened(tmp_path)) == "system"
    machine["uid"] = 1000
    assert scope(opened(tmp_path)) == "user"
    machine["lingers"] = False  # units would end with the login
    assert scope(opened(tmp_path)) == "process"
    machine.update(lingers=True, manager=False)
    assert scope(opened(tmp_path)) == "process"
    machine.update(uid=0, booted=False)
    assert scope(opened(tmp_path)) == "process"


def test_auto_keeps_to_the_keepers_that_run(machine: dict[str, Any], bench: Any, tmp_path: Path) -> None:
    bench.install("kept", "tell('READY=1'); time.sleep(600)")
    bench.units.start("kept")
    assert isinstance(opened(tmp_path), ProcessUnits)
    bench.units.stop("kept")
    assert isinstance(opened(tmp_path), SystemdUnits)


def test_what_the_file_says_is_not_second_guessed(machine: dict[str, Any], tmp_path: Path) -> None:
    machine["booted"] = False
    assert scope(opened(tmp_path, units="systemd", scope="user")) == "user"
    assert scope(opened(tmp_path, units="process")) == "process"
    assert scope(opened(tmp_path, transport="ssh", address="10.1.2.3")) == "system"


@pytest.mark.skipif(systemhost.booted(), reason="needs a machine that systemd did not boot")
def test_a_machine_without_systemd_says_so(tmp_path: Path) -> None:
    units = opened(tmp_path, units="systemd", scope="user")
    assert isinstance(units, SystemdUnits)
    with pytest.raises(PdctlError, match="on here failed: systemd does not run this host"):
        units.status()
