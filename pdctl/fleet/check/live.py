"""Values changed since the last deploy that what runs cannot have: they are read when a process starts."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.catalogue.find import find
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope

_WHEN = {
    "start": "at start",
    "import": "when its module is imported",
    "capture": "when graphs are captured",
}


def problems(scope: Scope, deployed: str) -> Iterator[Finding]:
    """`deployed` is when a deploy last went through, written as `date` of a value is; "" finds nothing."""
    for unit in scope.units:
        for name, value in unit.values.items():
            row = find(name)
            if not deployed or not unit.name or value.date <= deployed:
                continue
            # A value that was seen to fire is the one that runs.
            if value.is_verified or (row and row.live):
                continue
            when = _WHEN[row.read] if row else "at start, as far as pdctl knows"
            says = f"was changed at {value.date}, after the last deploy, and is read {when}"
            do = "What runs has the old value, and --live cannot reach it: `pdctl deploy`."
            yield Finding("warning", "live", name, says, do, value.place, (unit.name,))


def reach(name: str) -> str:
    """Why a running process cannot take a new value of `name`; empty when it can."""
    row = find(name)
    if row is None:
        return f"{name} is in the environment of a process, which is read at start."
    return "" if row.live else f"{name} is read {_WHEN[row.read]}."
