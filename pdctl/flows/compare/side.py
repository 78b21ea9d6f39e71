"""One side of a comparison: a profile, what a deployment recorded, or what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdctl.facts.process import shown
from pdctl.fleet.model import Fleet
from pdctl.fleet.profile import Profile, opened

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Held:
    """The environment of one unit. Secrets that are called so are digests, so that two can be compared;
    `secret` are the names of all that are known to be one. `live` is what it was given since its start."""

    role: str
    environ: Environ
    secret: frozenset[str] = frozenset()
    live: Environ = field(default_factory=dict)

    @property
    def in_force(self) -> Environ:
        return {**self.environ, **self.live}


@dataclass(frozen=True)
class Side:
    """`units` by name; none for a profile, which is held by no unit. `only`: one unit was asked for by name.
    `running`: the variables are those that a host tells of a process and no others. `notes` are what could
    not be had."""

    label: str
    profile: Profile | None = None
    units: Mapping[str, Held] = field(default_factory=dict)
    only: bool = False
    running: bool = False
    notes: tuple[str, ...] = ()

    @property
    def secret(self) -> frozenset[str]:
        """Names whose values are not shown."""
        own = {v.env for v in self.profile.values.values() if v.secret} if self.profile else set()
        return frozenset(own).union(*(held.secret for held in self.units.values()))

    def held(self, fleet: Fleet, unit: str, role: str) -> Environ | None:
        """What `unit` has, or would have from this profile; None where it is not on this side."""
        if self.profile is not None:
            values = self.profile.env_for(role).items()
            return shown({env: opened(fleet, value).value for env, value in values})
        return self.units[unit].in_force if unit in self.units else None


def same(one: str | None, other: str | None) -> bool:
    """Of numbers the value counts."""
    if one is None or other is None or one == other:
        return one == other
    try:
        return float(one) == float(other)
    except ValueError:
        return False
