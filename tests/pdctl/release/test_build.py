"""A release is named by its content, and what changes from one to the next is told in few lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pdctl.errors import ConfigError
from pdctl.release.build import build_release, file_differences
from pdctl.release.lock import Lock
from pdctl.release.runtime import Facts, Runtime, existing, made, needed_dists
from tests.pdctl.release.conftest import host_at

RUNTIME = Runtime("existing", "/usr/bin/python3", "3.11.7", {"torch": "2.13.0"})
FACTS = Facts("/usr/bin/python3", "3.11.7", "x86_64", "2.36", {})


def test_the_id_follows_from_content_and_runtime() -> None:
    first = build_release({"engine/a.py": b"1"}, RUNTIME)
    assert build_release({"engine/a.py": b"1"}, RUNTIME).id == first.id
    assert build_release({"engine/a.py": b"2"}, RUNTIME).id != first.id
    assert build_release({"engine/b.py": b"1"}, RUNTIME).id != first.id
    other = build_release({"engine/a.py": b"1"}, Runtime("existing", "/p", "3.11.7", {"torch": "2.14.0"}))
    assert other.id != first.id and other.tree == first.tree
    assert first.manifest["constraints"] == {"torch": "2.13.0"}


def test_a_venv_is_named_by_lock_python_and_wheels(tmp_path) -> None:
    host = host_at(tmp_path, runtime="wheelhouse")
    lock = Lock("a==1\n")
    first = made(FACTS, host, lock)
    assert made(FACTS, host, lock).venv == first.venv
    assert made(FACTS, host, Lock("a==2\n")).venv != first.venv
    assert made(FACTS, host, lock, ["digest"]).venv != first.venv
    assert made(Facts("/usr/bin/python3", "3.12.1", "x86_64", "2.36", {}), host, lock).venv != first.venv
    patch = Facts("/usr/bin/python3", "3.11.9", "x86_64", "2.36", {})
    assert made(patch, host, lock).venv == first.venv, "the machine's own updates keep a venv"


def test_the_engine_is_found_and_not_imported() -> None:
    code = """
import sys
from pdctl.release.build import package_files
names = list(package_files())
assert "engine/__main__.py" in names and "kernels/__init__.py" in names, names
assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]
print(sorted(m for m in sys.modules if m.split(".")[0] in ("engine", "kernels", "torch", "numpy")))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout.strip()) == (0, "[]"), found.stderr


def test_a_runtime_that_lacks_something_names_it(tmp_path) -> None:
    always, _ = needed_dists()
    assert {"torch", "nixl", "starlette"} <= set(always)
    facts = Facts("/p", "3.11.0", "x86_64", "2.36", {**dict.fromkeys(always, "1"), "nixl": None})
    with pytest.raises(ConfigError, match=r"hosts\.local\.python: /p lacks nixl"):
        existing(facts, host_at(tmp_path, python="/p"))


def test_a_python_that_is_too_old_is_told(tmp_path) -> None:
    facts = Facts("/usr/bin/python3", "3.9.2", "x86_64", "2.31", {})
    with pytest.raises(ConfigError, match=r"is Python 3\.9\.2; engines need 3\.11 or later"):
        made(facts, host_at(tmp_path, runtime="index"), Lock("a==1\n"))


def test_many_changed_files_are_counted_and_few_are_named() -> None:
    before = {f"engine/{n}.py": "1" for n in range(9)} | {"engine/gone.py": "1"}
    after = {f"engine/{n}.py": "2" for n in range(9)} | {"engine/new.py": "1"}
    assert file_differences(before, after) == [
        "9 changed: " + ", ".join(f"engine/{n}.py" for n in range(6)) + " and 3 more",
        "1 new: engine/new.py",
        "1 gone: engine/gone.py",
    ]
    assert file_differences(after, after) == []
