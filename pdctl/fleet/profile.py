"""Env profiles: named values with a reason each, layered by `extends`, and where every value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import known, no_profile, other_names, side_applies
from pdctl.fleet.chain import chain_problems
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.names import UNPRINTABLE, nearest, unprintable
from pdctl.fleet.problems import TomlFile
from pdctl.fleet.schema import ProfileFile, ValueTable, Verified
from pdctl.fleet.secret import MASK, is_secret
from pdctl.fleet.secretfile import read_secrets


@dataclass(frozen=True)
class Value:
    """One variable's value. `origin` is `profile NAME (file:line)` or `file:line`, of whole paths.

    A secret's value is *** in a profile, which only names its `file`; a unit's environment has it.
    """

    env: str
    value: str
    side: str
    reason: str
    origin: str
    profile: str = ""
    verified: Verified | None = None
    secret: bool = False
    file: str = ""
    author: str = ""
    date: str = ""
    proved_by: str = ""

    @property
    def place(self) -> str:
        """`file:line`, of an origin that may name its profile too."""
        return self.origin.partition("(")[2].removesuffix(")") or self.origin

    @property
    def shown(self) -> str:
        """For people's eyes: a secret is one too where it stands in plain text."""
        return MASK if self.secret or is_secret(self.env, self.value) else self.value

    @property
    def is_verified(self) -> bool:
        """Whether what was seen to fire is this very value, by its text alone: no date counts."""
        return self.verified is not None and self.verified.value == self.value


@dataclass(frozen=True)
class Profile:
    """`chain` is the names from this profile down to the one that extends nothing; `drillable` is its own."""

    name: str
    description: str
    chain: tuple[str, ...]
    values: dict[str, Value]
    drillable: bool = False

    def env_for(self, role: str) -> dict[str, Value]:
        return {e: v for e, v in self.values.items() if side_applies(v.side, role)}

    def numbers(self) -> dict[str, float]:
        """Known variables as numbers, defaults included: what chain_problems looks at."""
        given = {e: float(v.value) for e, v in self.values.items() if e in known()}
        return {e: v.default for e, v in known().items()} | given


def profile_names(folder: Path) -> list[str]:
    return sorted(p.stem for p in folder.glob("*.toml"))


def load_profile(folder: Path, name: str) -> Profile:
    """`name` with everything it extends; ConfigError lists every problem of the file that has any."""
    chain: list[str] = []
    values: dict[str, Value] = {}
    description, drillable = "", False
    wanted: str | None = name
    while wanted is not None:
        if wanted in chain:
            circle = " -> ".join([*chain, wanted])
            raise ConfigError("bad_profile", f"Profile {name} extends itself: {circle}.")
        spec, file = _load_one(folder, wanted)
        description = description or spec.description
        drillable = drillable or (spec.drillable and wanted == name)
        chain.append(wanted)
        for env, row in spec.values.items():
            origin = f"profile {wanted} ({file.path}:{file.line('values', env)})"
            values.setdefault(env, _value(env, row, origin, wanted))
        wanted = spec.extends
    return Profile(name, description, tuple(chain), dict(sorted(values.items())), drillable)


def _value(env: str, row: ValueTable, origin: str, profile: str) -> Value:
    hidden = row.secret is not None
    text = MASK if hidden else row.value or ""
    by = {"author": row.author or "", "date": row.date or "", "proved_by": row.proved_by or ""}
    return Value(
        env, text, row.side, row.reason, origin, profile, row.verified, hidden, row.secret or "", **by
    )


def _load_one(folder: Path, name: str) -> tuple[ProfileFile, TomlFile]:
    path = folder / f"{name}.toml"
    if not path.exists():
        hint = nearest(name, profile_names(folder))
        raise ConfigError("no_profile", f"There is no profile {name} in {folder}.", hint)
    file = TomlFile(path)
    spec = file.validate(ProfileFile)
    if spec is not None:
        _check(file, spec, name)
    file.finish("bad_profile", f"The profile {path}")
    if spec is None:
        raise ConfigError("bad_profile", f"The profile {path} is not valid.")
    return spec, file


def _check(file: TomlFile, spec: ProfileFile, name: str) -> None:
    if spec.name != name:
        file.problem(("name",), f"must be {name}, as the file is called.")
    for env, row in spec.values.items():
        variable = known().get(env)
        at = ("values", env)
        if (row.value is None) == (row.secret is None):
            file.problem(at, "must have value, or secret with the file that holds it.")
            continue
        if unprintable(row.value or ""):
            file.problem((*at, "value"), UNPRINTABLE)
        if variable is None:
            if env in other_names():
                file.problem(at, no_profile(env))
            elif env.startswith("PD_"):
                file.problem(at, f"unknown variable. {nearest(env, known())}")
            continue
        if row.secret is not None:
            file.problem((*at, "secret"), "is for what must not be seen; this is a plain setting.")
        elif why := variable.problem(row.value or ""):
            file.problem((*at, "value"), why)
        if row.side != variable.side:
            file.problem((*at, "side"), f"must be {variable.side}: that is who reads {env}.")


def engine_env(fleet: Fleet, unit: Engine | Router) -> dict[str, Value]:
    """What `unit` is started with from profile and fleet file, with the origin of each value.

    ConfigError when a secret cannot be read.
    """
    values = plain_env(fleet, unit)
    for env, (text, line) in unit_secrets(fleet, unit).items():
        origin = f"{fleet.dir / Path(unit.spec.secrets or '').expanduser()}:{line}"
        values[env] = Value(env, text, unit.role, "A secret of this unit.", origin, secret=True)
    return dict(sorted((env, opened(fleet, value)) for env, value in values.items()))


def plain_env(fleet: Fleet, unit: Engine | Router) -> dict[str, Value]:
    """The same without a look at secrets: those of the profile as ***, of the unit's own file none."""
    values = load_profile(fleet.paths.profiles, unit.profile).env_for(unit.role)
    file = TomlFile(fleet.path)
    for env, text in unit.env.items():
        origin = f"{fleet.path}:{file.line(*unit.keys, 'env', env)}"
        values[env] = Value(env, text, unit.role, "Set for this unit in the fleet file.", origin)
    return dict(sorted(values.items()))


def opened(fleet: Fleet, value: Value) -> Value:
    """A secret of a profile with its text in place."""
    if not value.file:
        return value
    path = fleet.dir / Path(value.file).expanduser()
    found = _secrets(path, f"{value.place}: ").get(value.env)
    if found is None:
        said = f"{value.place}: {value.env} is not in the secrets {path}."
        raise ConfigError("no_secret", said, f"Add a line {value.env}=… to it.")
    return replace(value, value=found[0])


def unit_secrets(fleet: Fleet, unit: Engine | Router) -> dict[str, tuple[str, int]]:
    """Name -> (value, line) of the unit's secrets file; ConfigError when it cannot be read."""
    if unit.spec.secrets is None:
        return {}
    return _secrets(fleet.dir / Path(unit.spec.secrets).expanduser(), f"{unit.name}: ")


def _secrets(path: Path, of: str) -> dict[str, tuple[str, int]]:
    try:
        return read_secrets(path)
    except OSError as error:
        said = f"{of}the secrets {path} cannot be read: {error.strerror}."
        raise ConfigError("no_secrets", said, "Write the file, a line NAME=VALUE each, mode 0600.") from None
    except ValueError as error:
        raise ConfigError("bad_secrets", str(error)) from None


def numbers_of(values: Mapping[str, Value]) -> dict[str, float]:
    return {e: float(v.value) for e, v in values.items() if e in known()}


__all__ = ["Profile", "Value", "chain_problems", "engine_env", "load_profile", "numbers_of", "profile_names"]
