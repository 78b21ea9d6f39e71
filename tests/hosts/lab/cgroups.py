"""A host's processes, found and killed by cgroup: no pid files, no pid reuse, and it works on a frozen host.

`NAME/hN/{keeper,run}` in each hierarchy. Limits go on hN; the keeper has its own leaf because on cgroup v2
only leaves may hold processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.lab.names import Names
from tests.hosts.lab.shell import LabError, write

_ROOT = "/sys/fs/cgroup"
_USED_V1 = {"name=systemd", "memory", "pids", "cpu", "cpuacct", "cpu,cpuacct", "blkio"}
_DEEP = 8
_EMPTY_WITHIN = 15.0


@dataclass(frozen=True)
class Hierarchy:
    """`controllers` is None for v2; `own` is this process's place in it."""

    mount: str
    own: str
    controllers: str | None

    @property
    def pure(self) -> bool:
        """The only hierarchy of a machine without v1."""
        return self.controllers is None and self.mount == _ROOT


def hierarchies() -> list[Hierarchy]:
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        mount, (kind, _, options) = left.split()[4], right.split()[:3]
        if not mount.startswith(_ROOT):
            continue
        if kind == "cgroup2":
            found[mount] = Hierarchy(mount, own.get("", "/"), None)
        elif kind == "cgroup":
            for controllers, path in own.items():
                if controllers and set(controllers.split(",")) <= set(options.split(",")):
                    found[mount] = Hierarchy(mount, path, controllers)
    return list(found.values())


def places(names: Names) -> list[Path]:
    """Where this set's cgroups go. v1 and hybrid: below our own cgroup, so that whoever limits us limits
    the hosts too. Pure v2: below the root, the only place a process may share with controllers on."""
    found = []
    for one in hierarchies():
        if one.pure:
            found.append(Path(one.mount) / names.group)
        elif one.controllers is None or one.controllers in _USED_V1:
            found.append(Path(one.mount + one.own.rstrip("/")) / names.group)
    return found


def make(names: Names, host: str) -> None:
    for place in places(names):
        (place / host / "keeper").mkdir(parents=True, exist_ok=True)
        if place.parent == Path(_ROOT):
            have = (place.parent / "cgroup.controllers").read_text().split()
            on = " ".join(f"+{c}" for c in ("memory", "pids", "cpu", "io") if c in have)
            for folder in (place.parent, place, place / host):
                write(folder / "cgroup.subtree_control", on)


def limit_memory(names: Names, host: str, size: int) -> None:
    for place in places(names):
        for file in ("memory.limit_in_bytes", "memory.max"):
            if (place / host / file).exists():
                write(place / host / file, str(size))


def find(names: Names, host: str = "") -> Iterator[Path]:
    """All cgroups of the set or of one host, also those made from another login's cgroup."""
    for one in hierarchies():
        for top, folders, _ in os.walk(one.mount):
            if top.count("/") - one.mount.count("/") > _DEEP:
                folders.clear()
            elif names.group in folders:
                folders.remove(names.group)
                place = Path(top, names.group, host)
                if place.is_dir():
                    yield place


def unified(names: Names, host: str) -> Path | None:
    """The one that can be killed, frozen and asked whether anything lives in it."""
    return next((place for place in find(names, host) if (place / "cgroup.kill").exists()), None)


def populated(names: Names, host: str) -> bool:
    place = unified(names, host)
    return place is not None and "populated 1" in (place / "cgroup.events").read_text()


def members(names: Names, host: str, below: str) -> list[int]:
    place = unified(names, host)
    try:
        return [int(pid) for pid in (place / below / "cgroup.procs").read_text().split()] if place else []
    except FileNotFoundError:
        return []


def kill(names: Names, host: str = "") -> None:
    """SIGKILL everything in the host (or in all of them) at once, and remove the cgroups."""
    found = list(find(names, host))
    for place in found:
        if (place / "cgroup.kill").exists():
            write(place / "cgroup.kill", "1")
    end = time.monotonic() + _EMPTY_WITHIN
    for place in found:
        while not _removed(place):
            if time.monotonic() > end:
                raise LabError(f"{place} does not empty")
            time.sleep(0.02)
    for parent in {place.parent for place in found} if host else ():
        _removed(parent, deep=False)


def _removed(place: Path, deep: bool = True) -> bool:
    try:
        below = [folder for folder, _, _ in os.walk(place, topdown=False)] if deep else [str(place)]
        for folder in below:
            os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
