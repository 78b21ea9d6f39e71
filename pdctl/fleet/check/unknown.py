"""Names that nothing reads: misspelled, or another engine's."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.catalogue import other_names
from pdctl.fleet.catalogue.find import family_of, is_for, like_argument, resembles
from pdctl.fleet.catalogue.read import Family
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope, Unit
from pdctl.fleet.profile import Value


def problems(scope: Scope) -> Iterator[Finding]:
    for unit in scope.units:
        for name, value in unit.values.items():
            family = family_of(name)
            if family is not None:
                yield from _of(unit, value, family)
            elif near := like_argument(name, unit.kind) if name.startswith("-") else "":
                says = f"is no argument of {unit.kind} that pdctl knows"
                units = (unit.name,) if unit.name else ()
                yield Finding("warning", "unknown", name, says, f"Did you mean {near}?", value.place, units)


def _of(unit: Unit, value: Value, family: Family) -> Iterator[Finding]:
    name = value.env
    level, units = "info", (unit.name,) if unit.name else ()
    if unit.role != "router" and not is_for(name, unit.kind):
        says = f"is a name of {family.about}, and {unit.called} is {unit.kind}"
        yield Finding(level, "unknown", name, says, "Take it out if nothing reads it.", value.place, units)
        return
    if (
        name in family.variables
        or name in other_names()
        or (family.names is not None and name in family.names)
    ):
        return
    if near := resembles(name):
        do = f"Did you mean {near}?"
        says = f"is no variable of {family.release}"
        yield Finding("warning", "unknown", name, says, do, value.place, units)
    elif family.names is not None:
        do = "Another release or a fork may have it: keep it only if the build that you run reads it."
        says = f"is no variable of {family.release}, whose names pdctl has"
        yield Finding(level, "unknown", name, says, do, value.place, units)
