"""What one set of hosts is called, where it lies, and which addresses it has."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hosts.lab.shell import LabError

MAX_HOSTS = 16
HOST = re.compile(r"h([1-9]\d?)")


@dataclass(frozen=True)
class Names:
    """Sets do not meet: two of them may use the same addresses at the same time."""

    base: Path
    name: str
    net: str = "10.77.0"

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z][a-z0-9]{0,7}", self.name):
            raise LabError(f"a set is named with a-z and 0-9, 8 at most, not {self.name!r}")

    @property
    def dir(self) -> Path:
        return self.base / self.name

    @property
    def group(self) -> str:
        """The cgroup that holds all of this set."""
        return f"testhosts-{self.name}"

    @property
    def switch(self) -> str:
        """The namespace with the bridge; the test process enters it as `ctl`."""
        return f"{self.name}-net"

    def namespace(self, host: str) -> str:
        return f"{self.name}-{host}"

    def number(self, host: str) -> int:
        found = HOST.fullmatch(host)
        if not found:
            raise LabError(f"{host!r} is not a host of a lab: h1, h2, …")
        return int(found[1])

    def address(self, host: str) -> str:
        return f"{self.net}.1" if host == "ctl" else f"{self.net}.{10 + self.number(host)}"

    def mac(self, host: str) -> str:
        return f"02:77:00:00:00:{10 + self.number(host):02x}"

    def disk(self, host: str) -> Path:
        """The host's own layer of its file system, its log and mount points."""
        return self.dir / host

    def state(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.dir / "state.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def save(self, state: dict[str, Any]) -> None:
        self.dir.mkdir(parents=True, exist_ok=True)
        temporary = self.dir / ".state.tmp"
        temporary.write_text(json.dumps(state, indent=1))
        temporary.rename(self.dir / "state.json")

    @contextlib.contextmanager
    def lock(self, what: str = "") -> Iterator[None]:
        """One process at a time changes the set (or the image, which all sets share)."""
        self.base.mkdir(parents=True, exist_ok=True)
        with open(self.base / f".{what or self.name}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
