"""Where a deploy can start the supervisor of a fleet."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.fleet.place import place


def refuse_elsewhere(fleet: Fleet) -> None:
    """ConfigError with file and line for a supervisor that is asked for on another machine than this one.

    It reads the fleet's folder (fleet file, profiles, policy, token) and speaks SSH as its user, so it runs
    where those are.
    """
    control = fleet.hosts[fleet.control]
    if not fleet.spec.fleet.supervise or control.local:
        return
    raise ConfigError(
        "supervise_elsewhere",
        f"{place(fleet, 'fleet', 'supervise')}: fleet.supervise: the control host {control.name} is another "
        "machine, and the supervisor runs where the fleet's folder and the keys for its hosts are.",
        f'Keep the fleet\'s folder on {control.name}, name that host there with transport = "local" and '
        "deploy from there; or set fleet.supervise = false and run `pdctl supervise` here.",
    )
