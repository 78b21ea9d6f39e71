"""Values changed since the last deploy that what runs cannot have: they are read when a process starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdctl.fleet.catalogue.find import find
from pdctl.fleet.catalogue.variable import Variable
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope
from pdctl.fleet.model import Fleet
from pdctl.fleet.place import place
from pdctl.fleet.profile import Value
from pdctl.fleet.secret import is_secret

_WHEN = {
    "start": "at start",
    "import": "when its module is imported",
    "capture": "when graphs are captured",
}


_DO = "What runs has the old value, and --live cannot reach it: `pdctl deploy`."
# Unit -> what its last deploy gave it, secrets left out.
Given = Mapping[str, Mapping[str, str]]


def problems(fleet: Fleet, scope: Scope, deployed: str, given: Given) -> Iterator[Finding]:
    """`deployed` is when a deploy last went through, written as `date` of a value is, "" for never. By it are
    told values of units that are not in `given`."""
    for unit in scope.units if deployed else ():
        for name, value in unit.values.items():
            row = find(name) or unit.row(name)
            # A value that was seen to fire is the one that runs.
            if not unit.name or value.is_verified or (row and row.live):
                continue
            if says := _changed(name, value, deployed, given.get(unit.name)):
                yield Finding("warning", "live", name, f"{says} {_when(row)}", _DO, value.place, (unit.name,))
        for name, old in given.get(unit.name, {}).items() if unit.name else ():
            row = find(name) or unit.row(name)
            if name in unit.values or (row and row.live):
                continue
            says = f"is set no more, was {old} in the last deploy, and is read {_when(row)}"
            at = place(fleet, *fleet.unit(unit.name).keys)
            yield Finding("warning", "live", name, says, _DO, at, (unit.name,))


def _when(row: Variable | None) -> str:
    return _WHEN[row.read] if row else "at start, as far as pdctl knows"


def _changed(name: str, value: Value, deployed: str, given: Mapping[str, str] | None) -> str:
    """By its text, whoever has edited it and whatever its date says; "" when it is as it was deployed."""
    at = f"at {value.date}, " if value.date > deployed else ""
    if given is None or value.secret or is_secret(name, value.value):
        return f"was changed {at}after the last deploy, and is read" if at else ""
    old = given.get(name)
    if old == value.value:
        return ""
    was = "was not set" if old is None else f"was {old}"
    since = f" (changed {at.removesuffix(', ')})" if at else ""
    return f"is {value.value}, {was} in the last deploy{since}, and is read"


def reach(name: str) -> str:
    """Why a running process cannot take a new value of `name`; empty when it can."""
    row = find(name)
    if row is None:
        return f"{name} is in the environment of a process, which is read at start."
    return "" if row.live else f"{name} is read {_WHEN[row.read]}."
