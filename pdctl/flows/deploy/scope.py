"""`--limit`: which cells a deploy is about, named themselves or by a host they stand on."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.fleet.names import nearest
from pdctl.flows.deploy.group import Group


def chosen(fleet: Fleet, groups: Sequence[Group], limit: Sequence[str]) -> list[Group]:
    """All groups without a limit. A host stands for every cell with an engine on it, and for the router
    when that is there; the router's own name for the router. ConfigError for a word that is neither."""
    if not limit:
        return list(groups)
    names = [*fleet.cells, *fleet.hosts, fleet.router.name]
    for word in limit:
        if word not in names:
            what = f"--limit {word}: there is no such cell or host."
            raise ConfigError("unknown_limit", what, nearest(word, names))
    return [g for g in groups if set(limit) & {_name(fleet, g), *g.hosts}]


def _name(fleet: Fleet, group: Group) -> str:
    return fleet.router.name if group.kind == "router" else group.name
