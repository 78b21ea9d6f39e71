"""A host of this machine, wheels made by hand, and code that answers a preflight."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from pdctl.release.build import Release, build_release
from pdctl.release.host import HostReleases
from pdctl.release.runtime import Runtime
from pdctl.transport.local import LocalTransport

ANSWERS = b"""
import json, sys
print("chatter")
print(json.dumps({"engine": "9.9", "argv": sys.argv[1:]}))
"""


def host_at(root: Path, **table: str) -> Host:
    return Host("local", HostTable(**{"python": sys.executable, **table}), str(root))


def releases_of(host: Host) -> HostReleases:
    return HostReleases(LocalTransport(host.name), host)


def release(number: int = 0, main: bytes = ANSWERS, runtime: Runtime | None = None) -> Release:
    files = {
        "engine/__init__.py": str(number).encode(),
        "engine/__main__.py": main,
        "kernels/k.py": b"\xff\0",
    }
    return build_release(files, runtime or Runtime("existing", sys.executable, "3.11", {}))


def make_wheel(folder: Path, name: str, version: str, needs: str = "") -> Path:
    """A wheel whose module holds its version."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/__init__.py", f"VERSION = {version!r}\n")
        file.writestr(f"{info}/METADATA", meta)
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:VERSION.isupper\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, and a cache of its own for pdctl."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "tinya", "1.0", "tinyb>=2")
    make_wheel(folder, "tinyb", "2.0")
    make_wheel(folder, "tinyb", "3.0")
    return folder
