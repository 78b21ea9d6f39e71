"""What differs between two profiles, whom it reaches, and the environment of each unit for a mix of the
two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import deadline_order, known
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.profile import Value, engine_env, load_profile
from pdctl.fleet.secret import is_secret
from pdctl.flows.bisect.search import Mix
from pdctl.flows.foreign import is_foreign

Env = dict[str, str | None]


@dataclass(frozen=True)
class Difference:
    """One value; None where a profile says nothing. `good_at` and `bad_at` say where (profile, file:line).

    `live`: it can be set on every unit that it reaches without a restart.
    """

    env: str
    good: str | None
    bad: str | None
    good_at: str
    bad_at: str
    units: tuple[str, ...]
    live: bool


@dataclass(frozen=True)
class Subject:
    """A unit that mixes are tried on, and what it is given under each of the two profiles.

    Both name all that these two or its own profile decide; None is unset.
    """

    unit: Engine | Router
    good: Env
    bad: Env

    @property
    def name(self) -> str:
        return self.unit.name

    def mixed(self, differences: Sequence[Difference], mix: Mix) -> Env:
        chosen = {differences[i].env for i in mix}
        return {env: self.bad[env] if env in chosen else text for env, text in self.good.items()}


def is_live(unit: Engine | Router, env: str) -> bool:
    """Whether `env` is set on `unit` without a restart."""
    variable = known().get(env)
    return variable is not None and variable.live and not is_foreign(unit)


@dataclass(frozen=True)
class Compared:
    """`differences` in the order in which they are searched; `idle` differ and reach no unit here, `secret`
    ones are not tried."""

    good: str
    bad: str
    subjects: tuple[Subject, ...]
    differences: tuple[Difference, ...]
    idle: tuple[str, ...]
    secret: tuple[str, ...]


def compare(fleet: Fleet, good: str, bad: str) -> Compared:
    """ConfigError when the two do not differ in anything that a unit here would notice."""
    folder = fleet.paths.profiles
    one, other = load_profile(folder, good).values, load_profile(folder, bad).values
    names = [n for n in sorted({*one, *other}) if _text(one.get(n)) != _text(other.get(n))]
    subjects = tuple(_subject(fleet, unit, good, bad) for unit in _chosen(fleet, good, bad))
    secret = [n for n in names if _secret(n, (one, other))]
    found, idle = [], []
    for name in (n for n in names if n not in secret):
        units = [s for s in subjects if s.good.get(name) != s.bad.get(name)]
        if not units:
            idle.append(name)
            continue
        live = all(is_live(s.unit, name) for s in units)
        places = _place(one.get(name), good), _place(other.get(name), bad)
        where = tuple(s.name for s in units)
        found.append(
            Difference(name, _text(one.get(name)), _text(other.get(name)), *places, units=where, live=live)
        )
    if not found:
        said = f"{good} and {bad} do not differ in anything that reaches {fleet.name}."
        raise ConfigError("no_difference", said, "`pdctl profile diff` shows what they say.")
    return Compared(good, bad, subjects, tuple(in_order(found)), tuple(idle), tuple(secret))


def _chosen(fleet: Fleet, good: str, bad: str) -> list[Engine | Router]:
    """The units that run with one of the two; where none does, those that run with the fleet's profile."""
    units = list(fleet.units())
    return [u for u in units if u.profile in (good, bad)] or [
        u for u in units if u.profile == fleet.spec.fleet.profile
    ]


def _subject(fleet: Fleet, unit: Engine | Router, good: str, bad: str) -> Subject:
    envs = [engine_env(fleet, replace(unit, profile=p)) for p in (good, bad, unit.profile)]
    names = sorted(n for n in {*envs[0], *envs[1], *envs[2]} if not _secret(n, envs) and _reads(unit, n))
    return Subject(unit, *({n: _text(env.get(n)) for n in names} for env in envs[:2]))


def _reads(unit: Engine | Router, env: str) -> bool:
    """Engines of another kind are given none of the bundled one's variables."""
    return not (is_foreign(unit) and env.startswith("PD_"))


def _secret(name: str, envs: Iterable[Mapping[str, Value]]) -> bool:
    """Not tried, since what is tried is written down."""
    values = [env[name] for env in envs if name in env]
    return any(v.secret or is_secret(name, v.value) for v in values)


def _text(value: Value | None) -> str | None:
    return None if value is None else value.value


def _place(value: Value | None, profile: str) -> str:
    return f"profile {profile} says nothing" if value is None else value.origin


def in_order(differences: Iterable[Difference]) -> list[Difference]:
    """Values that need no restart first, so that mixes of those alone need none.

    Of deadlines that must fire one inside the other, those that grow come before those that shrink, and grow
    from the outside in: each mix that takes the first so many of them is in order then, as both profiles are.
    """
    depth = _depth()

    def place(d: Difference) -> tuple[bool, bool, int, str]:
        shrinks = _number(d.bad, d.env) < _number(d.good, d.env)
        inside = depth.get(d.env, 0)
        return (not d.live, shrinks, inside if shrinks else -inside, d.env)

    return sorted(differences, key=place)


def _depth() -> dict[str, int]:
    """How many deadlines fire inside each."""
    depth: dict[str, int] = {}
    for _ in deadline_order():
        for inner, outer, _why in deadline_order():
            depth[outer] = max(depth.get(outer, 0), depth.get(inner, 0) + 1)
    return depth


def _number(text: str | None, env: str) -> float:
    variable = known().get(env)
    try:
        return float(text) if text is not None else variable.default if variable else 0.0
    except ValueError:
        return 0.0
