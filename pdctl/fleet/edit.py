"""Edit a profile file in place: comments and order stay, the change is checked before it is written."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import known, no_profile, other_names
from pdctl.fleet.catalogue.find import find, resembles
from pdctl.fleet.chain import chain_problems
from pdctl.fleet.names import nearest
from pdctl.fleet.profile import Profile, load_profile
from pdctl.fleet.schema import Verified
from pdctl.fleet.secret import is_secret


@dataclass(frozen=True)
class Change:
    """`old` is the value in force before, "" when there was none; `file` is where `new` now stands."""

    env: str
    old: str
    new: str
    side: str
    file: Path


@dataclass(frozen=True)
class Edit:
    """A profile file's text as it is and as it is to be; nothing is written before `apply`."""

    path: Path
    before: str
    after: str

    def apply(self) -> None:
        """ConfigError, and the file as it was, when the text is no valid profile or was changed meanwhile."""
        if self.path.read_text(encoding="utf-8") != self.before:
            raise ConfigError("changed_meanwhile", f"{self.path} was changed meanwhile.", "Run it again.")
        write_profile(self.path, self.after)
        try:
            load_profile(self.path.parent, self.path.stem)
        except ConfigError:
            write_profile(self.path, self.before)
            raise


def set_value(
    folder: Path, profile: str, env: str, value: str, reason: str, by: str, side: str | None = None
) -> Change:
    """Set one value in one profile. A value that was verified becomes unverified by having changed.

    ConfigError for an unknown variable, a bad value, an empty reason, or timeouts left out of order.
    """
    before = load_profile(folder, profile)
    row = _row(before, env, value, reason, by, side)
    _check_order(before, {env: value})
    _edited(folder, profile, {env: row}, keep=("verified",)).apply()
    old = before.values[env].value if env in before.values else ""
    return Change(env, old, value, row["side"], folder / f"{profile}.toml")


def set_values(folder: Path, profile: str, values: Mapping[str, tuple[str, str]], by: str) -> Edit:
    """The edit that gives variables a (value, reason) each, all at once; ConfigError as set_value."""
    before = load_profile(folder, profile)
    rows = {env: _row(before, env, value, reason, by, None) for env, (value, reason) in values.items()}
    _check_order(before, {env: value for env, (value, _) in values.items()})
    return _edited(folder, profile, rows, keep=("verified",))


def _row(before: Profile, env: str, value: str, reason: str, by: str, side: str | None) -> dict[str, Any]:
    if not reason.strip():
        raise ConfigError("no_reason", "A value needs a reason.", "Pass --reason.")
    if is_secret(env, value):
        hint = f'Put {env}=… into a 0600 file beside the fleet file, and secret = "FILE" under {env}.'
        raise ConfigError("plain_secret", f"{env} is a secret; a profile would show it to everybody.", hint)
    return {
        "value": value,
        "side": _side(env, value, side, before.values[env].side if env in before.values else None),
        "reason": reason.strip(),
        "author": by,
        "date": now(),
    }


def _check_order(before: Profile, values: Mapping[str, str]) -> None:
    numbers = before.numbers() | {env: float(value) for env, value in values.items() if env in known()}
    worse = [p for p in chain_problems(numbers) if p not in chain_problems(before.numbers())]
    if worse:
        said = ", ".join(f"{env}={value}" for env, value in values.items())
        first = ", ".join(env for env in numbers if env not in values and any(env in why for why in worse))
        hint = f"Change {first} first, or let `pdctl tune-timeout --apply` move all of them." if first else ""
        raise ConfigError("out_of_order", f"{said} would put timeouts out of order.", hint, details=worse)


def set_verified(folder: Path, profile: str, env: str, record: Verified) -> None:
    """Record that the watchdog behind `env` was seen to fire; an inherited value is copied here."""
    value = load_profile(folder, profile).values.get(env)
    if value is None:
        raise ConfigError("no_value", f"Profile {profile} has no value {env}.")
    row: dict[str, Any] = {"value": value.value, "side": value.side, "reason": value.reason}
    fields = {k: v for k, v in record.model_dump().items() if v is not None}
    wanted = {env: {**row, "verified": fields}}
    _edited(folder, profile, wanted, keep=("author", "date", "proved_by")).apply()


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _side(env: str, value: str, side: str | None, before: str | None) -> str:
    variable = known().get(env)
    if variable is None:
        if env in other_names():
            raise ConfigError("not_in_profile", f"{env} {no_profile(env)}")
        if env.startswith("PD_"):
            raise ConfigError(
                "unknown_variable", f"{env} is not a variable of the engine.", nearest(env, known())
            )
        row = find(env)
        chosen = side or before or (row.side if row else None)
        if chosen is None:
            near = resembles(env)
            hint = f"Did you mean {near}? Else pass" if near else "Pass"
            hint += " --side prefill, decode, both or router."
            raise ConfigError(
                "no_side", f"{env} is not in pdctl's catalogue: who reads it is not known.", hint
            )
        return chosen
    if side is not None and side != variable.side:
        raise ConfigError("bad_side", f"{env} is read by {variable.side}, not by {side}.")
    if why := variable.problem(value):
        raise ConfigError("bad_value", f"{env} {why}")
    return variable.side


def _edited(folder: Path, profile: str, rows: Mapping[str, dict[str, Any]], keep: tuple[str, ...]) -> Edit:
    """Replace the keys of these values' tables; keys in `keep` that a row does not name stay as they are."""
    path = folder / f"{profile}.toml"
    original = path.read_text(encoding="utf-8")
    document = tomlkit.parse(original)
    values = document.setdefault("values", tomlkit.table(is_super_table=True))
    for env, row in rows.items():
        if env not in values:
            values[env] = tomlkit.table()
        _fill(values[env], row, keep)
    return Edit(path, original, tomlkit.dumps(document))


def _fill(table: Any, row: dict[str, Any], keep: tuple[str, ...]) -> None:
    for key in list(table):
        if key not in row and key not in keep:
            del table[key]
    for key, value in row.items():
        if isinstance(value, dict):
            inner = tomlkit.table()
            inner.update(value)
            inner.add(tomlkit.nl())
            table[key] = inner
        else:
            table[key] = value


def write_profile(path: Path, text: str) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
