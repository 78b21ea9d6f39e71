"""The layers as tables: what each room may import. Everything else in this folder checks code against these.

A room is the first folder or file below a package (`pdctl.flows`, `engine.transfer`). A room may import
itself, and what its row allows. A new room needs a row here, with its place thought about.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

# pdctl, bottom to top. A room imports rooms of the rows below its own, never of its own row.
PDCTL_ROWS: tuple[tuple[str, ...], ...] = (
    ("contracts", "exits", "procs"),
    ("errors",),
    ("fleet",),
    ("transport",),
    ("remote",),
    ("units", "release"),
    ("facts",),
    ("adapters",),
    ("adopt",),
    ("plan",),
    ("diagnose",),
    ("bundle",),
    ("supervisor",),
    ("flows",),
    ("render",),
    ("cli",),
    ("__main__",),
)

# The engine, bottom to top: room -> rooms it may import. Not a ladder, so each row is written out.
_BASE = ("core", "faults")
_PURE = ("core", "faults", "schedule", "cache", "text")
_MATH = ("core", "parallel", "weights", "layers", "models")
_ALL = (*_PURE, *_MATH, "runner", "transfer", "group", "http", "api", "router")
ENGINE: dict[str, tuple[str, ...]] = {
    "core": (),
    "faults": ("core",),
    "cache": ("core",),
    "schedule": ("core", "cache"),
    "parallel": ("core",),
    "text": ("core",),
    "http": ("core",),
    "weights": ("core",),
    "layers": ("core", "parallel", "weights"),
    "models": ("core", "parallel", "weights", "layers"),
    "runner": _MATH,
    "transfer": _BASE,
    "group": (*_PURE, *_MATH, "runner", "transfer"),
    "api": (*_PURE, "http", "group"),
    "router": ("core", "http"),
    "args": ("core", "group"),
    "version": ("core",),
    "probe": ("core", "transfer"),
    "serve": (*_ALL, "args"),
    "__main__": (*_ALL, "args", "version", "probe", "serve"),
}

# Rooms that decide. Their tests need no tensor and they start in milliseconds.
NO_TORCH = ("core", "faults", "cache", "schedule", "http", "router")

# One kernel does not know another: ops/<op> is the unit. Shared are how a kernel is started, the layout of
# the pool and the cut of decode attention along the context. Streams order launches and know no operation.
KERNELS: dict[str, tuple[str, ...]] = {
    "dispatch": (),
    "launch": (),
    "ops": ("dispatch", "launch"),
    "registry": ("ops",),
    "streams": ("launch",),
}

MAX_FILE, MAX_FUNCTION, MEDIAN_FILE = 350, 50, 100  # non-blank lines


@dataclass(frozen=True)
class Package:
    """One top-level package: its rooms, and the top-level modules from outside that it may import."""

    name: str
    allowed: dict[str, frozenset[str]]
    outside: frozenset[str]


def _ladder(rows: tuple[tuple[str, ...], ...]) -> dict[str, frozenset[str]]:
    below: set[str] = set()
    allowed: dict[str, frozenset[str]] = {}
    for row in rows:
        allowed |= {room: frozenset(below) for room in row}
        below |= set(row)
    return allowed


def _modules(requirements: list[str]) -> frozenset[str]:
    """Import names of a list of requirements: here they differ from the project names by a dash only."""
    return frozenset(re.split(r"[\s\[<>=;!~]", r, maxsplit=1)[0].replace("-", "_") for r in requirements)


def packages(root: Path) -> tuple[Package, ...]:
    """The three packages. Outside modules come from pyproject: pdctl has the base ones and no more."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    base = _modules(project["dependencies"])
    extra = _modules(project["optional-dependencies"]["engine"])
    std = frozenset(sys.stdlib_module_names)
    engine = {room: frozenset(below) for room, below in ENGINE.items()}
    kernels = {room: frozenset(below) for room, below in KERNELS.items()}
    return (
        Package("pdctl", _ladder(PDCTL_ROWS), std | base | {"click", "profiles", "systemd"}),
        Package("engine", engine, std | base | extra | {"kernels", "profiles"}),
        Package("kernels", kernels, std | {"torch", "triton"}),
    )
