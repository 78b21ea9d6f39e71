"""Which backend drives a host's units."""

from __future__ import annotations

import os

from pdctl.fleet.model import Host, HostPaths
from pdctl.transport.base import Transport
from pdctl.units import systemhost
from pdctl.units.base import Units
from pdctl.units.process import ProcessUnits
from pdctl.units.systemd import SystemdUnits
from pdctl.units.systemtool import probe


def open_units(transport: Transport, paths: HostPaths, host: Host, fleet: str) -> Units:
    """What the fleet file says; `auto` is systemd over SSH, and on this machine where it can be used.

    There root's units are the machine's and anybody else's their own manager's. Without systemd as PID 1, for
    a user whose units would end with the login, and while keepers run the fleet it is the process backend.
    """
    scope = host.spec.scope
    if host.local and host.spec.units == "auto":
        scope = scope if os.geteuid() == 0 else "user"
        if not _usable(paths.root, fleet, scope):
            return ProcessUnits(transport, paths)
    elif host.spec.units == "process":
        return ProcessUnits(transport, paths)
    return SystemdUnits(transport, paths, host.tool_python, fleet, scope)


def _usable(root: str, fleet: str, scope: str) -> bool:
    found = probe(systemhost.Host({"root": root, "fleet": fleet, "scope": scope}), {})
    return bool(found["answers"] and not found["kept"] and (found["lasts"] or found["ours"]))
