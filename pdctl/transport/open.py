"""From a host of the fleet file to its transport."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.model import Host
from pdctl.transport.base import Transport
from pdctl.transport.local import LocalTransport


def open_transport(host: Host) -> Transport:
    if host.spec.transport == "local":
        return LocalTransport(host.name)
    raise ConfigError(
        "transport_missing",
        f"hosts.{host.name}.transport: {host.spec.transport} is not in this version of pdctl.",
        'Use transport = "local" for engines on this machine.',
    )
