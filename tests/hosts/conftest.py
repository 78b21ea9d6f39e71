"""Hosts for tests. A test that takes `hosts` runs on their network; every other test keeps this machine's."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import hostpython, needs
from tests.hosts.lab.guard import guarded
from tests.hosts.lab.host import LabHost
from tests.hosts.lab.lab import Lab
from tests.hosts.lab.names import Names
from tests.hosts.operator_home import MODELS, make_home

COUNT = 3
PROJECT = Path(__file__).parents[2]
BASE = Path(os.environ.get("TESTHOSTS_BASE", "/var/cache/testhosts"))
NAME = os.environ.get("TESTHOSTS_NAME", "tst")
# What `make test` takes of this folder; `make test-hosts` runs all of it.
SAMPLE = (
    "test_needs.py",
    "test_ssh_contract.py",
    "test_release.py::test_from_nothing_to_serving_and_then_nothing",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    if not any(f"tests/hosts/{name}" in item.nodeid for name in SAMPLE):
        item.add_marker("hosts")


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """COUNT hosts for the whole session; skips with the reason where there can be none."""
    if reason := needs.missing(BASE):
        pytest.skip(reason)
    model = Path.home() / MODELS / "smollm2-135m"
    with _own_name() as (name, lock), guarded(made := Lab(BASE, name), lock):
        try:
            # Whatever a killed run has left is not what tests start from.
            made.down()
            binds = [f"{PROJECT / 'pdctl'}:/opt/pd/project/pdctl", *hostpython.bind()]
            made.up(COUNT, bind_ro=[*binds, *([str(model)] if model.exists() else [])])
            yield made
        finally:
            made.down()


@pytest.fixture
def hosts(lab: Lab) -> Iterator[list[LabHost]]:
    """h1, h2, h3, running and healthy, with the test's thread on their network; healed afterwards.

    A fixture of a wider scope enters the network itself: `with lab.inside():`.
    """
    with lab.inside():
        try:
            yield lab.hosts
        finally:
            lab.restore()


@pytest.fixture
def home(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME of an operator who can log in to every host by its name."""
    folder = tmp_path / "home"
    make_home(folder, lab)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def host_python(hosts: list[LabHost]) -> str:
    """Path of a Python on every host that has torch, nixl and the rest of the engine's libraries."""
    if not hostpython.bind():
        pytest.skip(
            "the hosts have Python 3.11, these tests run on another: its libraries do not load there."
        )
    for host in hosts:
        hostpython.install(host)
    return hostpython.PYTHON


@contextlib.contextmanager
def _own_name() -> Iterator[tuple[str, int]]:
    """A set that no other test run has, and the lock on it. What a killed run has left is taken over."""
    BASE.mkdir(parents=True, exist_ok=True)
    for name in (NAME, *(f"{NAME[:7]}{number}" for number in range(2, 10))):
        with open(Names(BASE, name).base / f".{name}.session", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield name, file.fileno()
            return
    pytest.fail("nine test runs have hosts on this machine already")
