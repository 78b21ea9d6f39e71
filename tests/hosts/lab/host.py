"""One host, reached from outside: through its namespaces, not through its network or its sshd."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.hosts.lab import cgroups
from tests.hosts.lab.names import Names
from tests.hosts.lab.shell import LabError, sh


class LabHost:
    def __init__(self, names: Names, name: str) -> None:
        self._names = names
        self.name = name
        self.address = names.address(name)

    @property
    def root(self) -> Path:
        """The running host's file system, as this machine sees it."""
        return Path(f"/proc/{self.leader}/root")

    @property
    def leader(self) -> int:
        """The pid of the host's own PID 1; LabError when it is off."""
        for below in ("run/payload/init.scope", "run/payload"):
            pids = cgroups.members(self._names, self.name, below)
            if pids:
                return pids[0]
        raise LabError(f"{self.name} is not running")

    @property
    def on(self) -> bool:
        try:
            return self.leader > 0
        except LabError:
            return False

    def try_sh(self, script: str, user: str = "root", timeout: float = 60.0) -> tuple[int, str]:
        """Exit code and both outputs of a shell script on the host; also while its network is cut."""
        enter = ["nsenter", f"--target={self.leader}", "--all", "--root", "--wd", "--"]
        become = [] if user == "root" else ["runuser", "-u", user, "--"]
        done = sh(*enter, *become, "bash", "-c", script, check=False, timeout=timeout, env=_ENV)
        return done.returncode, done.stdout

    def sh(self, script: str, user: str = "root", timeout: float = 60.0) -> str:
        """What the script said; LabError when it failed."""
        code, said = self.try_sh(script, user, timeout)
        if code:
            raise LabError(f"{self.name}: {script!r}: exit {code}\n{said}")
        return said

    def booted(self) -> bool:
        try:
            code, said = self.try_sh("systemctl is-system-running --wait", timeout=30)
        except (LabError, subprocess.TimeoutExpired):
            return False
        return code in (0, 1) and said.strip() in ("running", "degraded")


_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def until(condition: Callable[[], object], within: float = 10.0, what: str = "") -> None:
    """Poll until `condition` is true; AssertionError with `what` at the deadline."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not within {within:g} s: {what or condition}"
        time.sleep(0.02)
