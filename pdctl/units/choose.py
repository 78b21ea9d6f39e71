"""Which backend drives a host's units."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.model import HostPaths
from pdctl.transport.base import Transport
from pdctl.units.base import Units
from pdctl.units.process import ProcessUnits


def open_units(transport: Transport, paths: HostPaths, wanted: str) -> Units:
    """`wanted` is auto, process or systemd; auto is process on this machine, where units belong to a user.

    systemd's unit files are rendered (units.systemd); they are driven once hosts are reached over SSH.
    """
    if wanted == "systemd":
        raise ConfigError(
            "units_missing",
            f"hosts.{transport.host}.units: systemd is not driven by this version of pdctl.",
            'Use units = "process".',
        )
    return ProcessUnits(transport, paths)
