"""`--limit`: which cells a deploy is about, named themselves or by a host they stand on."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.fleet.names import nearest
from pdctl.flows.deploy.group import Group
from pdctl.flows.deploy.look import States
from pdctl.units.spec import UnitSpec


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


def strangers(states: States, groups: Sequence[Group], every: Sequence[Group]) -> list[str]:
    """A sentence for each cell of `groups` that the running router must still be told of, or told anew; none
    where the router is among them anyway. Without it such a cell would be ready and get no requests."""
    front = next(g for g in every if g.kind == "router")
    if any(g.kind == "router" for g in groups) or not front.units:
        return []
    (router,) = front.units
    if not states.hosts[router.host].runs(router.name):
        return []
    installed = states.hosts[router.host].specs.get(router.name)
    heard = states.document(router.unit).get("engines")
    names = None if heard is None else {e["instance"] for e in heard}
    lines = []
    for group in (g for g in groups if g.kind == "cell"):
        pairs = {u.name for u in group.units if u.unit.role != "both"}
        stranger = names is not None and not pairs <= names
        if stranger or words_of(installed, group.name) != words_of(router.spec, group.name):
            lines.append(f"{router.name}: learns of {group.key}, so it is deployed to along with it")
    return lines


def with_router(groups: Sequence[Group], every: Sequence[Group]) -> list[Group]:
    """In the order of a deploy."""
    return [g for g in every if g.kind == "router" or g in groups]


def words_of(spec: UnitSpec | None, cell: str) -> list[str]:
    """What a router is told of one cell: `--prefill NAME=…,CELL`."""
    return [w for w in spec.argv if w.endswith(f",{cell}")] if spec else []


def _name(fleet: Fleet, group: Group) -> str:
    return fleet.router.name if group.kind == "router" else group.name
