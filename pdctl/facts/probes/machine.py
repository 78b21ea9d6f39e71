"""Host tool: the machine's clock, disk, shared memory, locked-memory limits and Python interpreters."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from pdctl.facts.probes.proc import read_text
from pdctl.facts.probes.process import limit_of

CAP_SYS_RESOURCE = 24
MEMLOCK = "Max locked memory"
VERSIONS = """
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps({"executable": sys.executable, "version": list(sys.version_info[:3]), "dists": found}))
"""


def probe_clock() -> float:
    """Unix seconds."""
    return time.time()


def _room(path: str) -> dict[str, Any]:
    stat = os.statvfs(path)
    return {
        "path": path,
        "total": stat.f_blocks * stat.f_frsize,
        "free": stat.f_bavail * stat.f_frsize,
        "inodes_free": stat.f_favail if stat.f_files else None,
    }


def probe_disk(path: str) -> dict[str, Any]:
    """Bytes of the file system that holds `path`, or will hold it once it is made."""
    there = os.path.abspath(path)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    return {**_room(there), "writable": os.access(there, os.W_OK)}


def probe_shm() -> dict[str, Any]:
    return _room("/dev/shm")


def probe_memlock() -> dict[str, Any]:
    """[soft, hard] bytes, -1 unlimited: of this login, of init, and whether init can raise its own."""
    capable = False
    for line in read_text("/proc/1/status").splitlines():
        if line.startswith("CapEff:"):
            capable = bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return {"login": limit_of(os.getpid(), MEMLOCK), "init": limit_of(1, MEMLOCK), "init_raises": capable}


def probe_boot() -> str:
    """Differs between any two machines, and between two boots of one."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def probe_python(interpreters: list[str], dists: list[str]) -> dict[str, Any]:
    """Interpreter -> what it says of itself as JSON text, or {"missing": why}; all asked at once."""
    started: dict[str, Any] = {}
    for path in interpreters:
        try:
            started[path] = subprocess.Popen(
                [path, "-c", VERSIONS, *dists],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            started[path] = {"missing": f"{path}: {error.strerror}"}
    return {path: _said(path, child) for path, child in started.items()}


def _said(path: str, child: Any) -> dict[str, Any]:
    if isinstance(child, dict):
        return child
    try:
        out, err = child.communicate(timeout=20.0)
    except subprocess.TimeoutExpired:
        child.kill()
        return {"missing": f"{path} did not answer in 20 s"}
    if child.returncode != 0:
        last = (err.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        return {"missing": f"{path}: {last}"}
    return {"said": out}
