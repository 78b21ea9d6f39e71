"""Room on disks and in shared memory, limits on locked memory, and the Pythons of a host."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pdctl.facts.missing import Missing
from pdctl.facts.process import limit

MIB, GIB = 1 << 20, 1 << 30
# Code, settings and logs of one release; below it a deploy or a log may fail at any moment.
ROOM = 256 * MIB


@dataclass(frozen=True)
class Room:
    """Bytes of the file system that holds `path` (or its nearest folder that exists)."""

    path: str
    total: int
    free: int
    inodes_free: int | None = None
    writable: bool = True


@dataclass(frozen=True)
class Memlock:
    """Bytes that a process may lock, None for unlimited: of a login, and of a unit of the system manager."""

    login: int | None
    system: int | None


@dataclass(frozen=True)
class Python:
    """An interpreter and the versions of distributions that it has."""

    path: str
    version: tuple[int, ...]
    dists: dict[str, str | None]

    @property
    def words(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def lacking(self) -> list[str]:
        """Distributions that were asked for and are not there."""
        return [name for name, version in self.dists.items() if version is None]


def room(row: dict[str, Any] | Missing) -> Room | Missing:
    if isinstance(row, Missing):
        return row
    return Room(row["path"], row["total"], row["free"], row["inodes_free"], row.get("writable", True))


def memlock(row: dict[str, Any] | Missing) -> Memlock | Missing:
    """A unit of systemd gets what its file says, as far as init may raise its own hard limit."""
    if isinstance(row, Missing):
        return row
    if not row["login"] or not row["init"]:
        return Missing("the limits cannot be read")
    return Memlock(limit(row["login"][1]), None if row["init_raises"] else limit(row["init"][1]))


def python(path: str, rows: dict[str, Any] | Missing) -> Python | Missing:
    if isinstance(rows, Missing):
        return rows
    row = rows.get(path, {"missing": f"{path} was not asked"})
    if "missing" in row:
        return Missing(row["missing"])
    try:
        said = json.loads(row["said"])
        return Python(path, tuple(said["version"]), said["dists"])
    except (ValueError, KeyError, TypeError):
        return Missing(f"{path} answered {row['said'][:80]!r}")


def size(value: float | None) -> str:
    """Bytes as an operator says them; None is unlimited."""
    if value is None:
        return "unlimited"
    for unit, factor in (("GiB", GIB), ("MiB", MIB)):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value / 1024:.0f} KiB"
