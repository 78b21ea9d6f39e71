"""Where a deploy can start the supervisor of a fleet."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.fleet.place import host_key, place


def refuse_elsewhere(fleet: Fleet) -> None:
    """ConfigError with file and line for a supervisor on a machine that cannot know a host of the fleet.

    It reads the fleet's files there, where `local` would be another machine than here.
    """
    control = fleet.hosts[fleet.control]
    if not fleet.spec.fleet.supervise or control.local:
        return
    for host in fleet.hosts.values():
        if host.local:
            raise ConfigError(
                "supervise_elsewhere",
                f"{place(fleet, 'fleet', 'supervise')}: fleet.supervise: the supervisor would run on "
                f"{control.name}, and {host_key(host, 'transport')} is local: no machine but this one.",
                f'Give {host.name} transport = "ssh" with an address that {control.name} reaches, or set '
                "fleet.supervise = false and run `pdctl supervise` here.",
            )
