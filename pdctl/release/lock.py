"""The locked dependency set of engines: names and versions, shipped with pdctl."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Requirement:
    """`marker` says on which machines it is needed; "" is on all."""

    name: str
    version: str
    marker: str = ""


@dataclass(frozen=True)
class Lock:
    """`text` is a requirements file as pip reads it."""

    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        rows = []
        for line in self.text.splitlines():
            found, _, marker = line.partition(";")
            name, pinned, version = found.strip().partition("==")
            if pinned and not name.startswith("#"):
                rows.append(Requirement(canonical(name), version.strip(), marker.strip()))
        return tuple(rows)


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def engine_lock() -> Lock:
    return Lock(Path(__file__).with_name("engine.lock").read_text(encoding="utf-8"))
