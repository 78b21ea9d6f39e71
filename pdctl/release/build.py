"""A release as bytes: the engine's and kernels' files, found beside pdctl and never imported."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdctl.fleet.shipped import package_dir
from pdctl.release.runtime import Runtime

PACKAGES = ("engine", "kernels")


@dataclass(frozen=True)
class Release:
    """`id` follows from every file's content and the runtime: equal id, equal release.

    `files` is empty where only the manifest is known: a release that a host has and pdctl does not.
    """

    id: str
    files: dict[str, bytes]
    manifest: dict[str, Any]

    @property
    def tree(self) -> str:
        return str(self.manifest["tree"])

    @property
    def venv(self) -> str:
        return str(self.manifest.get("venv") or "")

    def interpreter(self, root: str) -> str:
        return f"{root}/venvs/{self.venv}/bin/python" if self.venv else str(self.manifest["python"])

    def changed(self, base: Mapping[str, str]) -> dict[str, bytes]:
        """Files that are new or other than in `base` (name -> SHA-256)."""
        digests = self.manifest["files"]
        return {n: data for n, data in self.files.items() if base.get(n) != digests[n]}


def package_files() -> dict[str, bytes]:
    """Path below the tree -> content, without caches."""
    files: dict[str, bytes] = {}
    for package in PACKAGES:
        root = package_dir(package)
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                files[f"{package}/{path.relative_to(root).as_posix()}"] = path.read_bytes()
    return files


def build_release(files: dict[str, bytes], runtime: Runtime) -> Release:
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    manifest: dict[str, Any] = {
        "schema": 2,
        "tree": _id(digests),
        "venv": runtime.venv,
        "runtime": runtime.kind,
        "python": runtime.python,
        "python_version": runtime.version,
        "constraints": dict(sorted(runtime.dists.items())),
        "files": digests,
    }
    id = _id(manifest)
    return Release(id, files, {**manifest, "id": id})


def pack(files: Mapping[str, bytes]) -> str:
    """As hosttool unpacks it: every byte one character, as JSON, deflated, in base64."""
    text = json.dumps({name: data.decode("latin-1") for name, data in files.items()})
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode("ascii")


def file_differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What a release changes, in few lines: counts, and names while they are few."""
    new = sorted(after.keys() - before.keys())
    gone = sorted(before.keys() - after.keys())
    other = sorted(n for n in after.keys() & before.keys() if after[n] != before[n])
    lines = []
    for names, word in ((other, "changed"), (new, "new"), (gone, "gone")):
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            lines.append(f"{len(names)} {word}: {', '.join(names[:6])}{more}")
    return lines


def _id(of: object) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:12]
