"""What a stopped engine could leave behind on this host: processes, ports, shared memory, GPU memory.

`before` is taken while it lives, `left` after its stop; only what was seen before can be shown gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pdctl.facts.ports import free, holder


@dataclass(frozen=True)
class Footprint:
    """`processes` are (pid, create time), so that a reused pid is not mistaken; `shm` are /dev/shm files."""

    processes: tuple[tuple[int, float], ...]
    shm: tuple[str, ...]


def _shm(pid: int) -> set[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    found = {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
    return {path for path in found if not path.endswith("(deleted)")}


def before(pid: int) -> Footprint:
    """The footprint of the process tree under `pid`; empty when it is gone already."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return Footprint((), ())
    processes = []
    shm: set[str] = set()
    for process in family:
        try:
            processes.append((process.pid, process.create_time()))
        except psutil.Error:
            continue  # it ended between the listing and the reading
        shm |= _shm(process.pid)
    return Footprint(tuple(processes), tuple(sorted(shm)))


def _lives(pid: int, created: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def left(footprint: Footprint, address: str, ports: Iterable[int]) -> str:
    """The first thing that is still there, as words; "" when everything seen before is gone."""
    for pid, created in footprint.processes:
        if _lives(pid, created):
            return f"process {pid} of the old life"
    for port in ports:
        if not free(address, port):
            owner = holder(port)
            return f"port {port}, held by " + (f"pid {owner}" if owner else "a process that cannot be seen")
    for path in footprint.shm:
        if os.path.exists(path):
            return f"shared memory {path}"
    return ""


def proof(name: str, footprint: Footprint, ports: Iterable[int], device: str | None) -> str:
    """One sentence on what was shown free, and what could not be observed."""
    shm = (
        f"{len(footprint.shm)} shared-memory files gone" if footprint.shm else "it had no shared-memory files"
    )
    gpu = "it used no GPU" if device != "cuda" else "GPU memory not observable"
    listed = ", ".join(map(str, ports))
    return f"{name}: {len(footprint.processes)} processes gone, ports {listed} free, {shm}, {gpu}"
