"""A release as bytes: the engine's and kernels' files, found beside pdctl and never imported."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.shipped import package_dir

PACKAGES = ("engine", "kernels")


@dataclass(frozen=True)
class Runtime:
    """The Python that runs engines on a host, and the versions it has of what they need."""

    python: str
    version: str
    dists: dict[str, str]


@dataclass(frozen=True)
class Release:
    """`id` follows from every file's content and the runtime: equal id, equal release."""

    id: str
    files: dict[str, bytes]
    manifest: dict[str, Any]

    def archive(self) -> bytes:
        """A tar with the manifest last, so that an unpacked release without one is known as torn."""
        buffer = io.BytesIO()
        manifest = json.dumps(self.manifest, indent=1, sort_keys=True).encode() + b"\n"
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, data in [*sorted(self.files.items()), ("manifest.json", manifest)]:
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), 0o644
                tar.addfile(info, io.BytesIO(data))
        return buffer.getvalue()


def package_files() -> dict[str, bytes]:
    """Path below the release -> content, without caches."""
    files: dict[str, bytes] = {}
    for package in PACKAGES:
        root = package_dir(package)
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                files[f"{package}/{path.relative_to(root).as_posix()}"] = path.read_bytes()
    return files


def needed_dists() -> tuple[list[str], list[str]]:
    """Names that engines need on every machine, and those needed on some."""
    try:
        lines = requires("pdctl") or []
    except PackageNotFoundError:
        raise PdctlError("not_installed", "pdctl runs without being installed.", "pip install it.") from None
    always: list[str] = []
    sometimes: list[str] = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        name = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
        if name is None or not re.search(r"extra\s*==\s*['\"]engine['\"]", marker):
            continue
        (sometimes if " and " in marker else always).append(name[0])
    return always, sometimes


def check_runtime(probe: dict[str, Any], host: str) -> Runtime:
    """The runtime of a host from what hosttool's probe said; ConfigError names what is not installed."""
    always, _ = needed_dists()
    missing = [n for n in always if probe["dists"].get(n) is None]
    if missing:
        raise ConfigError(
            "runtime_incomplete",
            f"{probe['python']} on {host} lacks {', '.join(missing)}, which engines need.",
            f"Install them there: {probe['python']} -m pip install 'pdctl[engine]'.",
        )
    return Runtime(probe["python"], probe["version"], {n: v for n, v in probe["dists"].items() if v})


def build_release(files: dict[str, bytes], runtime: Runtime) -> Release:
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    manifest: dict[str, Any] = {
        "schema": 1,
        "python": runtime.python,
        "python_version": runtime.version,
        "constraints": dict(sorted(runtime.dists.items())),
        "files": digests,
    }
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return Release(digest[:12], files, {**manifest, "id": digest[:12]})
