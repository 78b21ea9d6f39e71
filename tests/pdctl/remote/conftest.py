"""The lock of a fleet whose control host is this machine, and operators as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from pdctl.remote.lock import FleetLock, lock_on
from pdctl.transport.local import LocalTransport

HOLD = """
import sys
from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from pdctl.errors import LockedError
from pdctl.remote.lock import lock_on
from pdctl.remote.lock_lease import hold
from pdctl.transport.local import LocalTransport
lock = lock_on(Host("ctl", HostTable(), sys.argv[1]), lambda: LocalTransport("ctl"))
sys.stdin.readline()
try:
    with hold(lock, "pdctl deploy", "run-1", lambda text: None):
        print("got", flush=True)
        sys.stdin.readline()
except LockedError:
    print("locked", flush=True)
"""

Spawn = Callable[[], subprocess.Popen[str]]


def here(root: Path) -> Host:
    return Host("ctl", HostTable(), str(root))


@pytest.fixture
def lock(tmp_path: Path) -> FleetLock:
    return lock_on(here(tmp_path), lambda: LocalTransport("ctl"))


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Start an operator; it takes the lock when it is sent a line, and gives it back at the next one."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", HOLD, str(tmp_path)]
        run = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(run)
        return run

    yield start
    for run in started:
        run.kill()
        run.communicate(timeout=20)


@pytest.fixture
def holding(spawn: Spawn) -> Spawn:
    """An operator who has the lock."""

    def start() -> subprocess.Popen[str]:
        run = spawn()
        assert tell(run) == "got"
        return run

    return start


def tell(run: subprocess.Popen[str]) -> str:
    """Send a line and read what it says to it."""
    assert run.stdin is not None and run.stdout is not None
    run.stdin.write("\n")
    run.stdin.flush()
    return run.stdout.readline().strip()
