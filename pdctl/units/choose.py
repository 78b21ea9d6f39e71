"""Which backend a host has: systemd where it is process 1, pdctl's keeper elsewhere."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.model import HostPaths
from pdctl.transport.base import Transport
from pdctl.transport.command import Command
from pdctl.units.base import Units
from pdctl.units.process import ProcessUnits


def open_units(transport: Transport, paths: HostPaths, wanted: str) -> Units:
    """`wanted` is auto, process or systemd. Units on this machine belong to a user, so auto means process
    there; systemd units are rendered (units.systemd) and driven once hosts are reached over SSH."""
    if wanted == "systemd":
        raise ConfigError(
            "units_missing",
            f"hosts.{transport.host}.units: systemd is not driven by this version of pdctl.",
            'Use units = "process".',
        )
    return ProcessUnits(transport, paths)


def has_systemd(transport: Transport) -> bool:
    """Whether systemd is process 1 on the host, by the test that sd_booted(3) makes."""
    return transport.run(Command(("test", "-d", "/run/systemd/system")), 10.0).rc == 0
