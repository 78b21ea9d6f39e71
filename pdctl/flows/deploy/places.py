"""Where this operator's deploys have put units, so that a host that leaves the fleet file is not forgotten.

Hosts record what serves on them, but nobody asks a host that the file no longer names, and one whose root or
scope changed is looked at in the new place only. What runs in the old one would go on and hold its ports.
"""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import last_note

NOTE = "places"
Places = Mapping[str, Mapping[str, str]]


def wanted(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Each host that gets units, with what decides where on it they are."""
    return {name: _place(fleet, name) for name in dict.fromkeys(unit.host for unit in fleet.units())}


def _place(fleet: Fleet, name: str) -> dict[str, str]:
    host = fleet.hosts[name]
    return {"root": host.root, "scope": host.spec.scope}


def used(fleet: Fleet) -> Places:
    """As the last deploy from here left it; empty when there was none."""
    found: Places = last_note(fleet.paths.journal, NOTE).get("hosts", {})
    return found


def begun(fleet: Fleet, journal: Journal) -> None:
    """Old and new places both, until the deploy has ended well."""
    journal.note(NOTE, hosts={**used(fleet), **wanted(fleet)})


def ended(fleet: Fleet, journal: Journal) -> None:
    """Units are where the file says, and in places that it has forgotten."""
    gone = {name: place for name, place in used(fleet).items() if name not in fleet.hosts}
    journal.note(NOTE, hosts={**gone, **wanted(fleet)})


def moved(fleet: Fleet) -> dict[str, ConfigError]:
    """Hosts whose units would be made a second time beside those that are there.

    On this machine they lie beside the fleet file and move with it.
    """
    found = {}
    for name, was in used(fleet).items():
        if name not in fleet.hosts or fleet.hosts[name].spec.transport == "local":
            continue
        if (now := _place(fleet, name)) != was:
            keys = [key for key in now if now[key] != was.get(key)]
            said = ", ".join(f"{key} = {was.get(key)}" for key in keys)
            found[name] = ConfigError(
                "host_moved",
                f"hosts.{name} was deployed to with {said}; its units there would go on beside the new ones.",
                f"Put {' and '.join(keys)} back, take its engines out of the file and deploy once, "
                "then change it.",
            )
    return found


def forgotten(fleet: Fleet) -> list[str]:
    """A sentence for each host that the fleet file no longer names."""
    return [
        f"{name} is not in the fleet file any more; what pdctl deployed there, in {place.get('root')}, "
        "goes on. Put the host back without engines and deploy once: that removes them."
        for name, place in used(fleet).items()
        if name not in fleet.hosts
    ]
