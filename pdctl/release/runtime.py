"""The Python that runs engines on a host: one that is there, or a venv made of the locked dependencies."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.model import Host
from pdctl.fleet.place import host_key
from pdctl.release.lock import Lock

# What engine/ is written for; an older Python fails at its first import.
LEAST = (3, 11)


@dataclass(frozen=True)
class Facts:
    """A host's Python and what of the engines' needs is installed in it; `glibc` is "" for another libc."""

    python: str
    version: str
    machine: str
    glibc: str
    dists: dict[str, str | None]

    @property
    def minor(self) -> str:
        """Such as 3.11: what wheels are made for."""
        return ".".join(self.version.split(".")[:2])

    @property
    def platform(self) -> str:
        libc = f"glibc {self.glibc}" if self.glibc else "no glibc"
        return f"Python {self.minor}, {self.machine}, {libc}"


@dataclass(frozen=True)
class Runtime:
    """`venv` is its id, "" where `python` runs engines itself; `dists` are versions, as far as known."""

    kind: str
    python: str
    version: str
    dists: dict[str, str]
    venv: str = ""


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


def existing(facts: Facts, host: Host) -> Runtime:
    """The host's own Python as it is; ConfigError names what is not installed in it."""
    always, _ = needed_dists()
    # What the operator named is what engines are started with, a wrapper included.
    named = host.spec.python or ""
    python = named if "/" in named else facts.python
    missing = [n for n in always if facts.dists.get(n) is None]
    if missing:
        raise ConfigError(
            "runtime_incomplete",
            f"{host_key(host, 'python')}: {python} lacks {', '.join(missing)}, which engines need.",
            f"Install them from pdctl's folder: {python} -m pip install -c constraints.txt '.[engine]'.",
        )
    return Runtime("existing", python, facts.version, {n: v for n, v in facts.dists.items() if v})


def made(facts: Facts, host: Host, lock: Lock, wheels: Sequence[str] = ()) -> Runtime:
    """A venv to be made of `lock`, of the wheels with these digests where they were given.

    The same lock for the same Python is the same venv. ConfigError for a Python that is too old.
    """
    if tuple(int(n) for n in facts.version.split(".")[:2]) < LEAST:
        least = ".".join(map(str, LEAST))
        raise ConfigError(
            "python_too_old",
            f"{host_key(host, 'python')}: {facts.python} is Python {facts.version}; "
            f"engines need {least} or later.",
            "Name a newer one.",
        )
    parts: list[Any] = [lock.text, facts.python, facts.minor, facts.machine, sorted(wheels)]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    dists = {r.name: r.version for r in lock.requirements}
    return Runtime(host.runtime, facts.python, facts.minor, dists, digest[:12])
