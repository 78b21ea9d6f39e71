"""systemd units on a test host whose process is a few lines of Python."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pdctl.fleet.model import HostPaths
from pdctl.transport.open import open_transport
from pdctl.units.envfile import render_env
from pdctl.units.spec import UnitSpec, UnitStatus
from pdctl.units.systemd import SystemdUnits
from tests.hosts.lab.host import LabHost
from tests.hosts.operator_home import fleet_host

PYTHON = "/usr/bin/python3"
HEAD = """
import os, signal, socket, subprocess, sys, time
def tell(text):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.sendto(text.encode(), os.environ["NOTIFY_SOCKET"]); s.close()
"""
SERVES = """
tell("READY=1\\nSTATUS=all fine")
print("serving", flush=True)
while True:
    tell("WATCHDOG=1")
    time.sleep(0.1)
"""
FAILS = "print('no luck', flush=True); sys.exit(int(sys.argv[1]))"


class UnitBench:
    """The systemd backend of one fleet on one host, as one login."""

    def __init__(self, host: LabHost, login: str, scope: str, fleet: str = "demo") -> None:
        self.host, self.login, self.scope, self.fleet = host, login, scope, fleet
        self.paths = HostPaths(f"/opt/pdctl/{fleet}-{login}-{scope}")
        host.sh(f"install -d -o {login} -g {login} {self.paths.root}")
        self.transport = open_transport(fleet_host(host.name, host.address, user=login, root=self.paths.root))
        self.units = SystemdUnits(self.transport, self.paths, PYTHON, fleet, scope)

    def spec(self, name: str, script: str, *words: str, **changes: Any) -> UnitSpec:
        """A decode of cell a that runs `script` with tell() at hand; its program and env file are written."""
        program = f"{self.paths.root}/{name}.py"
        self.transport.put((HEAD + textwrap.dedent(script)).encode(), program, 0o644)
        env = render_env({"GREETING": 'hello "you" \\ there'})
        self.transport.put(env.encode(), self.paths.env(name), 0o600)
        spec = UnitSpec(
            name=name,
            argv=(PYTHON, "-u", program, *words),
            env_file=self.paths.env(name),
            cwd=self.paths.root,
            log=self.paths.log(name),
            run=self.paths.run(name),
            inputs="digest-1",
            stop_timeout=5.0,
            restart_delay=0.1,
            role="decode",
            fleet=self.fleet,
            cell="a",
        )
        return replace(spec, **changes)

    def install(self, name: str, script: str, *words: str, **changes: Any) -> UnitSpec:
        spec = self.spec(name, script, *words, **changes)
        self.units.install(spec)
        return spec

    def serving(self, name: str, **changes: Any) -> UnitStatus:
        """Installed, started and active."""
        self.install(name, SERVES, **changes)
        self.units.start(name)
        return self.until(name, lambda s: s.state == "active")

    def until(self, name: str, wanted: Callable[[UnitStatus], object], seconds: float = 20.0) -> UnitStatus:
        """Poll the unit's status; the failure shows the last one and the log."""
        end = time.monotonic() + seconds
        while not wanted(status := self.units.status([name])[name]):
            if time.monotonic() > end:
                pytest.fail(f"{status}\n" + "\n".join(self.units.logs(name)))
            time.sleep(0.05)
        return status

    def systemctl(self, words: str) -> str:
        """By hand, as an operator on the host."""
        return self.shell(f"systemctl {'' if self.scope == 'system' else '--user'} {words}")

    def shell(self, script: str) -> str:
        """As who may drive these units."""
        if self.scope == "system":
            return self.host.sh(script)
        return self.host.sh(f"export XDG_RUNTIME_DIR=/run/user/$(id -u); {script}", self.login)

    @property
    def folder(self) -> str:
        return "/etc/systemd/system" if self.scope == "system" else f"/home/{self.login}/.config/systemd/user"

    def files(self) -> list[str]:
        """Everything of pdctl's in the folder of unit files, the links of enabled units too."""
        return self.host.sh(f"find {self.folder} -name '*pdctl*' 2>/dev/null || true").split()

    def alive(self, pid: int | None) -> bool:
        return self.host.try_sh(f"grep -q '^State:[^Z]*$' /proc/{pid}/status")[0] == 0

    def clear(self) -> None:
        for name in self.units.status():
            self.units.remove(name)
        self.transport.close()
