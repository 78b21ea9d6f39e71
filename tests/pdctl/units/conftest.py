"""Units whose process is a few lines of Python, supervised for real."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pdctl.fleet.model import HostPaths
from pdctl.transport.local import LocalTransport
from pdctl.units.envfile import render_env
from pdctl.units.process import ProcessUnits
from pdctl.units.spec import UnitSpec, UnitStatus

NOTIFY = """
import os, signal, socket, subprocess, sys, time
def tell(text):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.sendto(text.encode(), os.environ["NOTIFY_SOCKET"]); s.close()
"""


class Bench:
    """One host's process backend in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.paths = HostPaths(str(root))
        self.units = ProcessUnits(LocalTransport("local"), self.paths)
        self.root = root
        self.names: list[str] = []

    def install(self, name: str, script: str, **changes: Any) -> UnitSpec:
        """A unit that runs `script` with tell() at hand; short timeouts unless changed."""
        path = self.root / f"{name}.py"
        path.write_text(NOTIFY + textwrap.dedent(script))
        env = Path(self.paths.env(name))
        env.parent.mkdir(parents=True, exist_ok=True)
        env.write_text(render_env({"GREETING": 'hello "you" \\ there'}))
        spec = UnitSpec(
            name=name,
            argv=(sys.executable, "-u", str(path)),
            env_file=str(env),
            cwd=str(self.root),
            log=self.paths.log(name),
            run=self.paths.run(name),
            inputs="digest-1",
            stop_timeout=3.0,
            restart_delay=0.05,
        )
        spec = replace(spec, **changes)
        self.units.install(spec)
        self.names.append(name)
        return spec

    def until(self, name: str, wanted: Callable[[UnitStatus], bool], seconds: float = 20.0) -> UnitStatus:
        """Poll the unit's status; the failure shows the last one and the log."""
        end = time.monotonic() + seconds
        while True:
            status = self.units.status([name])[name]
            if wanted(status):
                return status
            if time.monotonic() > end:
                pytest.fail(f"{status}\n" + "\n".join(self.units.logs(name)))
            time.sleep(0.05)

    def log(self, name: str) -> str:
        return "\n".join(self.units.logs(name, 1000))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for name in made.names:
        made.units.stop(name)
