"""A wheelhouse: locked wheels fetched once, sent once, installed without an index, whole or not at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, PdctlError
from pdctl.release.host import HostReleases
from pdctl.release.lock import Lock
from pdctl.release.runtime import Facts, Runtime, made
from pdctl.release.wheels import Wheel, fetch, given_wheels, pip_wheel, platforms, wheel_of
from tests.pdctl.release.conftest import host_at, make_wheel, releases_of

LOCK = Lock("tinya==1.0\ntinyb==2.0\n")


class Made:
    """A host and what a deploy does to give it a venv."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.host = host_at(root, runtime="wheelhouse")
        self.tool: HostReleases = releases_of(self.host)
        self.facts: Facts = self.tool.look().facts
        self.said: list[str] = []

    def runtime(self, lock: Lock = LOCK) -> Runtime:
        return made(self.facts, self.host, lock, [w.sha256 for w in given_wheels(self.folder, lock, "local")])

    def wheels(self, lock: Lock = LOCK) -> list[Wheel]:
        return fetch(self.facts, lock, self.folder, "local", self.said.append)

    def build(self, lock: Lock = LOCK) -> tuple[str, frozenset[str]]:
        """The venv's Python, and the digests of what was sent for it."""
        wheels, pip = self.wheels(lock), pip_wheel(self.folder)
        assert pip is not None
        sent = self.tool.send([*wheels, pip], self.tool.look().installed.wheels)
        runtime = self.runtime(lock)
        self.tool.make_venv(runtime, lock, wheels, pip)
        return f"{self.root}/venvs/{runtime.venv}/bin/python", sent


@pytest.fixture
def host(tmp_path: Path, wheels: Path) -> Made:
    return Made(tmp_path / "root", wheels)


def run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_a_venv_of_locked_wheels(host: Made) -> None:
    python, sent = host.build()
    assert run(python, "-c", "import tinya, tinyb; print(tinya.VERSION, tinyb.VERSION)") == "1.0 2.0"
    assert run(str(Path(python).with_name("tinya"))) == "", "scripts know where their Python is"
    assert len(sent) == 3 and host.said == ["fetching 2 wheels for " + host.facts.platform]
    look = host.tool.look()
    assert look.installed.venvs == {Path(python).parents[1].name}
    # Another lock: only what the host lacks is sent, what is in the cache is not fetched again.
    _, more = host.build(Lock("tinya==1.0\ntinyb==3.0\n"))
    assert more == {wheel_of(host.folder / "tinyb-3.0-py3-none-any.whl").sha256}
    host.wheels()
    assert len(host.said) == 2


@pytest.mark.slow  # two more builds; the hosts' sample builds one too
def test_a_torn_venv_does_not_count_and_is_made_again(host: Made) -> None:
    python, _ = host.build()
    Path(python).unlink()
    assert host.tool.look().installed.venvs == frozenset()
    (host.root / "venvs" / ".half").mkdir()
    host.build()
    assert [p.name for p in (host.root / "venvs").iterdir()] == [host.runtime().venv]
    assert run(python, "-c", "import tinya; print(tinya.VERSION)") == "1.0"


def test_a_wheel_that_was_damaged_on_the_host_is_found_and_sent_again(host: Made) -> None:
    wheels, pip = host.wheels(), pip_wheel(host.folder)
    assert pip is not None
    host.tool.send([*wheels, pip], frozenset())
    path = host.root / "wheels" / wheels[0].sha256 / wheels[0].name
    path.write_bytes(b"torn")
    with pytest.raises(PdctlError, match="was damaged on this host"):
        host.tool.make_venv(host.runtime(), LOCK, wheels, pip)
    assert host.tool.look().installed.venvs == frozenset()
    _, sent = host.build()
    assert sent == {wheels[0].sha256}


def test_a_wheel_that_is_not_in_the_folder_is_named(host: Made) -> None:
    with pytest.raises(ConfigError, match=r"has no wheel of tinyc 1\.0\."):
        host.runtime(Lock("tinya==1.0\ntinyc==1.0\n"))
    with pytest.raises(ConfigError, match="there is no folder /nowhere"):
        given_wheels(Path("/nowhere"), LOCK, "hosts.h1.wheels")


def test_what_pip_said_is_told_when_the_lock_does_not_fit(host: Made) -> None:
    """A locked package needs one that the folder does not have."""
    make_wheel(host.folder, "tinyd", "1.0", "tinye>=1")
    with pytest.raises(ConfigError) as caught:
        host.wheels(Lock("tinyd==1.0\n"))
    assert "cannot be had" in caught.value.message
    assert any("tinye" in line for line in caught.value.details)


def test_an_install_that_fails_leaves_nothing_behind(host: Made) -> None:
    wheels, pip = host.wheels(), pip_wheel(host.folder)
    assert pip is not None
    host.tool.send([*wheels, pip], frozenset())
    with pytest.raises(PdctlError) as caught:
        host.tool.make_venv(host.runtime(), Lock("tinya==1.0\ntinyz==1.0\n"), wheels, pip)
    assert any("tinyz" in line for line in caught.value.details)
    assert list((host.root / "venvs").iterdir()) == []


def test_without_ensurepip_and_without_a_pip_to_send_there_is_a_sentence(host: Made, tmp_path: Path) -> None:
    """As on Debian without python3-venv."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u; old = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'ensurepip' else old(name, *more)\n"
    )
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {host.facts.python} "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(PdctlError, match="has no ensurepip"):
        releases_of(host_at(host.root, python=str(bare))).make_venv(host.runtime(), LOCK, [], None)


def test_newer_glibcs_run_wheels_for_older_ones() -> None:
    tags = platforms(Facts("p", "3.11.2", "aarch64", "2.28", {}))
    assert tags[0] == "manylinux_2_28_aarch64" and "manylinux_2_17_aarch64" in tags
    assert "manylinux2014_aarch64" in tags and "manylinux_2_29_aarch64" not in tags
