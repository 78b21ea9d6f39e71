"""Edit a profile file in place: comments and order stay, the change is checked before it is written."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import known, other_names
from pdctl.fleet.chain import chain_problems
from pdctl.fleet.names import nearest
from pdctl.fleet.profile import load_profile
from pdctl.fleet.schema import Verified


@dataclass(frozen=True)
class Change:
    """`old` is the value in force before, "" when there was none; `file` is where `new` now stands."""

    env: str
    old: str
    new: str
    side: str
    file: Path


def set_value(
    folder: Path, profile: str, env: str, value: str, reason: str, by: str, side: str | None = None
) -> Change:
    """Set one value in one profile. A value that was verified becomes unverified by having changed.

    ConfigError for an unknown variable, a bad value, an empty reason, or timeouts left out of order.
    """
    before = load_profile(folder, profile)
    if not reason.strip():
        raise ConfigError("no_reason", "A value needs a reason.", "Pass --reason.")
    row = {
        "value": value,
        "side": _side(env, value, side, before.values[env].side if env in before.values else None),
        "reason": reason.strip(),
        "changed_at": now(),
        "changed_by": by,
    }
    numbers = before.numbers() | ({env: float(value)} if env in known() else {})
    worse = [p for p in chain_problems(numbers) if p not in chain_problems(before.numbers())]
    if worse:
        raise ConfigError("out_of_order", f"{env}={value} would put timeouts out of order.", details=worse)
    _update(folder, profile, env, row, keep=("verified",))
    old = before.values[env].value if env in before.values else ""
    return Change(env, old, value, row["side"], folder / f"{profile}.toml")


def set_verified(folder: Path, profile: str, env: str, record: Verified) -> None:
    """Record that the watchdog behind `env` was seen to fire; an inherited value is copied here."""
    value = load_profile(folder, profile).values.get(env)
    if value is None:
        raise ConfigError("no_value", f"Profile {profile} has no value {env}.")
    row: dict[str, Any] = {"value": value.value, "side": value.side, "reason": value.reason}
    fields = {k: v for k, v in record.model_dump().items() if v is not None}
    _update(folder, profile, env, {**row, "verified": fields}, keep=("changed_at", "changed_by"))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _side(env: str, value: str, side: str | None, before: str | None) -> str:
    variable = known().get(env)
    if variable is None:
        if env.startswith("PD_") or env in other_names():
            raise ConfigError(
                "unknown_variable", f"{env} is not a variable of the engine.", nearest(env, known())
            )
        chosen = side or before
        if chosen is None:
            hint = "Pass --side prefill, decode, both or router."
            raise ConfigError(
                "no_side", f"{env} is not in pdctl's catalogue: who reads it is not known.", hint
            )
        return chosen
    if side is not None and side != variable.side:
        raise ConfigError("bad_side", f"{env} is read by {variable.side}, not by {side}.")
    if why := variable.problem(value):
        raise ConfigError("bad_value", f"{env} {why}")
    return variable.side


def _update(folder: Path, profile: str, env: str, row: dict[str, Any], keep: tuple[str, ...]) -> None:
    """Replace the keys of one value's table; keys in `keep` that `row` does not name stay as they are."""
    path = folder / f"{profile}.toml"
    original = path.read_text(encoding="utf-8")
    document = tomlkit.parse(original)
    values = document.setdefault("values", tomlkit.table(is_super_table=True))
    if env not in values:
        values[env] = tomlkit.table()
    table = values[env]
    for key in list(table):
        if key not in row and key not in keep:
            del table[key]
    for key, value in row.items():
        if isinstance(value, dict):
            inner = tomlkit.table()
            inner.update(value)
            table[key] = inner
        else:
            table[key] = value
    _write(path, tomlkit.dumps(document))
    try:
        load_profile(folder, profile)
    except ConfigError:
        _write(path, original)
        raise


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
