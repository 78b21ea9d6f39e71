"""From a host of the fleet file to its transport."""

from __future__ import annotations

from pdctl.fleet.model import Host
from pdctl.transport.base import Transport
from pdctl.transport.local import LocalTransport


def open_transport(host: Host) -> Transport:
    """Nothing is connected yet: a host that cannot be reached is known at its first call."""
    if host.spec.transport == "local":
        return LocalTransport(host.name)
    # Here and not above: loading paramiko takes longer than all of pdctl, for nothing in a local fleet.
    from pdctl.transport.ssh.transport import SshTransport

    return SshTransport(host)
