"""The whole of preflight on this machine: the same path that hosts over SSH take."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.changing import changing
from pdctl.flows.check.report import Level, Line
from pdctl.flows.check.run import check
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet
from pdctl.remote.journal import Call
from pdctl.render.check import show
from tests.pdctl.models import model_folder


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    model_folder(tmp_path / "model")
    path = tmp_path / "fleet.toml"
    init_fleet(path, Wanted("pre", str(tmp_path / "model")))
    return load_fleet(path)


def bad(lines: tuple[Line, ...]) -> list[Line]:
    return [line for line in lines if line.level >= Level.WARN]


def test_a_fleet_that_was_never_deployed_is_ready_for_it(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    with Context(fleet) as ctx:
        report = check(ctx, transfer=60.0)
    assert report.exit() is Exit.OK, bad(report.lines)
    (moved,) = [line for line in report.lines if line.check == "transfer"]
    assert moved.level is Level.OK and "every byte right" in moved.found
    show(report)
    assert "nothing is in the way" in capsys.readouterr().out


def test_ucx_settings_of_the_profile_are_those_that_are_tried(fleet: Fleet) -> None:
    text = fleet.path.read_text()
    head = "[cells.a.engines.decode-0]\n"
    fleet.path.write_text(text.replace(head, head + 'env = { UCX_TLS = "nosuch" }\n'))
    with Context(load_fleet(fleet.path)) as ctx:
        report = check(ctx, transfer=30.0)
    (line,) = bad(report.lines)
    assert line.check == "transfer" and "NIXL could not start the agent" in line.found
    assert "UCX: " in line.found and "nosuch" in line.found, "UCX's own words say what it lacks"


def test_a_port_that_somebody_holds_is_said_first_with_what_to_do(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    port = fleet.engine("decode-0").port
    with socket.create_server(("127.0.0.1", port)), Context(fleet) as ctx:
        report = check(ctx, transfer=None)
    (line,) = bad(report.lines)
    assert (line.subject, line.check) == ("decode-0", "ports") and f"pid {os.getpid()}" in line.found
    assert report.exit() is Exit.FINDINGS
    show(report)
    said = capsys.readouterr().out
    assert said.index("FAIL decode-0, ports: ") < said.index(f"fix: kill {os.getpid()} on local")


def test_while_another_run_changes_the_fleet_no_port_of_a_unit_is_touched(fleet: Fleet) -> None:
    """An engine that it starts meanwhile would find its port taken."""
    with Context(fleet) as other, changing(other, Call("deploy")), Context(fleet) as ctx:
        report = check(ctx, transfer=None)
        assert check(other, transfer=None).exit() is Exit.OK, "a run's own preflight may look closely"
    ways = [line for line in report.lines if line.check == "address"]
    assert {line.level for line in ways} == {Level.SKIP} and "does not listen now" in ways[0].found


def test_a_level_that_is_none_is_a_sentence(fleet: Fleet) -> None:
    argv = [sys.executable, "-m", "pdctl", "--fleet", str(fleet.path), "check", "--fail-on", "warm"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == Exit.USAGE and "warn" in done.stderr
