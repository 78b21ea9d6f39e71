"""Secrets that a unit could not be given: no file, one that is open to others, a name that is not in it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.errors import ConfigError
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope
from pdctl.fleet.foreign import secret_problems
from pdctl.fleet.model import Fleet
from pdctl.fleet.place import place
from pdctl.fleet.profile import opened

_DO = "A deploy is refused until then: a file of lines NAME=VALUE, mode 0600, beside the fleet file."


def problems(fleet: Fleet, scope: Scope) -> Iterator[Finding]:
    for unit in scope.units:
        units = (unit.name,) if unit.name else ()
        for name, value in unit.values.items():
            try:
                opened(fleet, value)
            except ConfigError as error:
                said = error.message.removeprefix(f"{value.place}: ").removesuffix(".")
                yield Finding("error", "secrets", name, f"cannot be had: {said}", _DO, value.place, units)
        if not unit.name:
            continue
        own = fleet.unit(unit.name)
        for key, sentence in secret_problems(fleet.dir, own.spec):
            at = place(fleet, *own.keys, key)
            yield Finding("error", "secrets", key, sentence.removesuffix("."), _DO, at, units)
