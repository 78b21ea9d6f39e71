"""The lock that ships with pdctl is what the engine extra comes to, at the versions built with."""

from __future__ import annotations

from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pdctl.release.lock import Lock, engine_lock
from tests.docs.lock import pins, roots

ROOT = Path(__file__).parents[3]


def test_every_version_is_the_one_of_constraints() -> None:
    locked = {r.name: r.version for r in engine_lock().requirements}
    assert locked.items() <= pins().items()
    assert "pytest" not in locked and "typer" not in locked


def test_nothing_that_a_locked_package_needs_is_missing() -> None:
    locked = {r.name for r in engine_lock().requirements}
    assert {canonicalize_name(r.name) for r in roots()} <= locked
    for name in locked:
        for line in requires(name) or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert canonicalize_name(need.name) in locked, f"{name} needs {line}"


def test_what_only_some_machines_have_keeps_its_marker() -> None:
    markers = {r.name: r.marker for r in engine_lock().requirements}
    assert markers["triton"] == 'platform_machine == "x86_64"' and markers["torch"] == ""


def test_engines_import_nothing_that_is_not_locked() -> None:
    """What `python -m engine version` loads is all there is, and all of it is in the lock."""
    from engine.version import MODULES

    locked = {r.name for r in engine_lock().requirements}
    assert {canonicalize_name(dist) for dist in MODULES.values() if dist} <= locked


def test_names_and_comments_are_read_as_pip_does() -> None:
    lock = Lock("# a==1\nMy_Pkg.x==1.2 ; python_version > '3'\n\nb==2\n")
    assert [(r.name, r.version, r.marker) for r in lock.requirements] == [
        ("my-pkg-x", "1.2", "python_version > '3'"),
        ("b", "2", ""),
    ]
