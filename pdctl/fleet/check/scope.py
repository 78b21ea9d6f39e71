"""What is checked: every unit with all it would be started with, and the edges between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue.find import families_of, is_for, kinds_of
from pdctl.fleet.catalogue.variable import Variable
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.problems import TomlFile
from pdctl.fleet.profile import Profile, Value, engine_env, plain_env


@dataclass(frozen=True)
class Unit:
    """`name` is "" for one that a profile could be for, where no unit of the fleet uses it. `values` are by
    variable and by argument; `profile` is the name of its profile."""

    name: str
    role: str
    kind: str
    host: str
    profile: str
    values: Mapping[str, Value]

    def rows(self) -> Iterator[Variable]:
        """What the catalogue has of variables and arguments that this unit reads."""
        for family in families_of(self.kind):
            for row in (*family.variables.values(), *family.arguments.values()):
                if row.read_by(self.role):
                    yield row

    def row(self, key: str) -> Variable | None:
        """The one of a name, if this unit reads it."""
        for family in families_of(self.kind):
            found = family.variables.get(key) or family.arguments.get(key)
            if found is not None:
                return found if found.read_by(self.role) else None
        return None

    def text(self, row: Variable) -> str | None:
        """What stands: the value given, else the default; None when neither is known."""
        given = self.values.get(row.key)
        return given.value if given else None if row.fork else row.default_text

    @property
    def called(self) -> str:
        return self.name or f"a {self.role}"


@dataclass(frozen=True)
class Edge:
    """A pair, and the router in front of it where there is one."""

    prefill: Unit
    decode: Unit
    router: Unit | None

    @property
    def units(self) -> tuple[Unit, ...]:
        return (self.prefill, self.decode, *((self.router,) if self.router else ()))

    @property
    def across_hosts(self) -> bool:
        return self.prefill.host != self.decode.host


@dataclass(frozen=True)
class Scope:
    units: tuple[Unit, ...]
    edges: tuple[Edge, ...]

    def with_profile(self, name: str) -> Scope:
        """The units of one profile, and the edges that one of them is on."""
        edges = tuple(e for e in self.edges if any(u.profile == name for u in e.units))
        return Scope(tuple(u for u in self.units if u.profile == name), edges)


def fleet_scope(fleet: Fleet, without: frozenset[str] = frozenset()) -> Scope:
    """The whole fleet; units of the profiles in `without`, which cannot be read, are left out."""
    file = TomlFile(fleet.path)
    units = {u.name: _unit(fleet, u, file) for u in fleet.units() if u.profile not in without}
    router = units.get(fleet.router.name)
    edges = [
        Edge(units[p.name], units[d.name], router)
        for p, d in fleet.edges()
        if p.name in units and d.name in units
    ]
    return Scope(tuple(units.values()), tuple(edges))


def profile_scope(profile: Profile) -> Scope:
    """A pair and a router as `profile` would start them, for one that no unit uses; of each kind of engine
    that it has values for, with those that are not another kind's."""
    edges = [_would_be(profile, kind) for kind in kinds_of(profile.values)]
    return Scope(tuple(unit for edge in edges for unit in edge.units), tuple(edges))


def _would_be(profile: Profile, kind: str) -> Edge:
    def unit(role: str, kind_of_unit: str) -> Unit:
        values = {name: value for name, value in profile.env_for(role).items() if is_for(name, kind)}
        return Unit("", role, kind_of_unit, "", profile.name, values)

    router = unit("router", "bundled" if kind == "bundled" else "sglang-router")
    return Edge(unit("prefill", kind), unit("decode", kind), router)


def _unit(fleet: Fleet, unit: Engine | Router, file: TomlFile) -> Unit:
    try:
        values = engine_env(fleet, unit)
    except ConfigError:
        values = plain_env(fleet, unit)  # a secret that cannot be had is a finding of its own
    if unit.kind != "bundled":
        values = {env: value for env, value in values.items() if not env.startswith("PD_")}
    for flag, text in unit.arguments.items():
        key = flag[2:].replace("-", "_") if unit.kind == "bundled" else "command"
        place = f"{fleet.path}:{file.line(*unit.keys, key)}"
        values[flag] = Value(flag, text, unit.role, "An argument of its command.", place)
    return Unit(unit.name, unit.role, unit.kind, unit.host, unit.profile, values)
