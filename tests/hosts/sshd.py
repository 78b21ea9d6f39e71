"""A second sshd on a host, with options of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.hosts.lab.host import LabHost


@contextlib.contextmanager
def sshd(host: LabHost, port: int, *options: str) -> Iterator[None]:
    """Listens for the block; `options` are lines of sshd_config."""
    pid_file = f"/run/sshd-{port}.pid"
    words = " ".join(f"-o '{option}'" for option in (f"PidFile={pid_file}", *options))
    host.sh(f"/usr/sbin/sshd -p {port} {words}; until ss -ltnH | grep -q ':{port} '; do sleep 0.02; done")
    try:
        yield
    finally:
        host.sh(f"kill $(cat {pid_file})")
