"""Runs on a host through `python - VERB …`, so it needs nothing there but Python.

probe NAME…         {"python", "version", "dists": {NAME: version|null}}
list ROOT           {"releases": [ids, oldest first], "current": id|null}
install ROOT ID TAR unpack TAR as releases/ID, whole or not at all; remove TAR
activate ROOT ID    point `current` at releases/ID atomically
prune ROOT KEEP ID… remove all but the newest KEEP; never the current one nor the IDs named
"""

import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from importlib import metadata
from typing import Any


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def probe(*names: str) -> dict[str, object]:
    version = ".".join(map(str, sys.version_info[:3]))
    return {"python": sys.executable, "version": version, "dists": {n: _version(n) for n in names}}


def listing(root: str) -> dict[str, Any]:
    folder = os.path.join(root, "releases")
    names = [n for n in os.listdir(folder) if not n.startswith(".")] if os.path.isdir(folder) else []
    # A release counts once its manifest is there; the manifest is the last file of the archive.
    whole = [n for n in names if os.path.exists(os.path.join(folder, n, "manifest.json"))]
    whole.sort(key=lambda n: os.stat(os.path.join(folder, n, "manifest.json")).st_mtime)
    current = os.path.join(root, "current")
    return {
        "releases": whole,
        "current": os.path.basename(os.readlink(current)) if os.path.islink(current) else None,
    }


def install(root: str, release: str, archive: str) -> dict[str, object]:
    folder = os.path.join(root, "releases")
    os.makedirs(folder, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f".{release}.", dir=folder)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        os.chmod(temporary, 0o755)
        os.utime(os.path.join(temporary, "manifest.json"))
        target = os.path.join(folder, release)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.unlink(archive)
    return listing(root)


def activate(root: str, release: str) -> dict[str, object]:
    temporary = os.path.join(root, f".current.{os.getpid()}")
    os.symlink(os.path.join("releases", release), temporary)
    os.replace(temporary, os.path.join(root, "current"))
    return listing(root)


def prune(root: str, keep: str, *used: str) -> dict[str, object]:
    state = listing(root)
    safe = {state["current"], *used}
    old = [n for n in state["releases"] if n not in safe]
    for name in old[: max(0, len(old) - int(keep))]:
        shutil.rmtree(os.path.join(root, "releases", name))
    return listing(root)


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "probe": probe,
    "list": listing,
    "install": install,
    "activate": activate,
    "prune": prune,
}

if __name__ == "__main__":
    try:
        print(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])))
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
