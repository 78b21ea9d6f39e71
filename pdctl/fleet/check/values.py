"""Values that are none: no number, out of range, a word that is not one of the choices."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope
from pdctl.fleet.secret import is_secret


def problems(scope: Scope) -> Iterator[Finding]:
    for unit in scope.units:
        units = (unit.name,) if unit.name else ()
        for row in unit.rows():
            value = unit.values.get(row.key)
            if value is not None and not value.secret and (why := row.problem(value.value)):
                default = row.default_text
                do = f"Its default is {default}." if default and not row.fork else "Leave it out, or mend it."
                yield Finding("error", "values", row.key, why.removesuffix("."), do, value.place, units)
        for name, value in unit.values.items():
            if not value.secret and not name.startswith("-") and is_secret(name, value.value):
                do = 'Put it into a 0600 file NAME=VALUE: `secret = "FILE"` here, `secrets` of a unit.'
                yield Finding("error", "values", name, "is a secret in plain text", do, value.place, units)
