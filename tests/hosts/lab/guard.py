"""Takes a set of hosts down when the process that has it dies: `python -m … BASE NAME NET PIDFD`.

A test run that is killed, or that pytest-timeout ends, tidies nothing up: its hosts would go on, and what it
started on their network too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.hosts.lab import netns
from tests.hosts.lab.lab import Lab
from tests.hosts.lab.names import Names

_PROJECT = Path(__file__).parents[3]


@contextlib.contextmanager
def guarded(lab: Lab, lock: int) -> Iterator[None]:
    """While the block runs. The set's lock, a descriptor, is the guard's too: nobody takes the set over
    before it is down."""
    names, us = lab.names, os.pidfd_open(os.getpid())
    words = (str(names.base), names.name, names.net, str(us))
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__, *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(us, lock),
        cwd=_PROJECT,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        os.close(us)


def kill_on_network(names: Names) -> None:
    """What the dead process had started there; hosts have networks of their own."""
    with contextlib.suppress(FileNotFoundError):
        network = os.stat(netns.path(names.switch)).st_ino
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.stat(place / "ns/net").st_ino == network:
                    os.kill(int(place.name), signal.SIGKILL)


def main(base: str, name: str, net: str, pidfd: str) -> None:
    select.select([int(pidfd)], [], [])
    lab = Lab(Path(base), name, net)
    kill_on_network(lab.names)
    lab.down()


if __name__ == "__main__":
    main(*sys.argv[1:])
