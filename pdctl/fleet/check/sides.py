"""Values that the two sides of an edge must share, that two engines of a host must not, and those that stand
on the side that does not read them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pdctl.fleet.catalogue.find import find
from pdctl.fleet.catalogue.variable import Variable, side_applies
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope, Unit


def problems(scope: Scope) -> Iterator[Finding]:
    for edge in scope.edges:
        if edge.prefill.kind == edge.decode.kind:
            yield from _differing(edge.prefill, edge.decode)
    for one, other in combinations([u for u in scope.units if u.name and u.role != "router"], 2):
        if one.host == other.host and one.kind == other.kind:
            yield from _alike(one, other)
    for unit in scope.units:
        yield from _misplaced(unit)


def _differing(prefill: Unit, decode: Unit) -> Iterator[Finding]:
    for row in prefill.rows():
        mine, theirs = prefill.text(row), decode.text(row)
        if not row.agree or mine == theirs or _same(row, mine, theirs):
            continue
        says = f"is {_word(mine)} for {prefill.called} and {_word(theirs)} for {decode.called}"
        yield _finding("error", row, says, f"Give both the same. {row.wrong}", prefill, decode)


def _alike(one: Unit, other: Unit) -> Iterator[Finding]:
    for row in one.rows():
        if row.unique and row.read_by(other.role) and one.text(row) == other.text(row) is not None:
            says = f"is {one.text(row)} for {one.called} and for {other.called} on the same host"
            yield _finding("error", row, says, f"Give each its own. {row.wrong}", one, other)


def _misplaced(unit: Unit) -> Iterator[Finding]:
    for name, value in unit.values.items():
        row = find(name)
        if row is None or value.side == "both" or side_applies(row.side, unit.role):
            continue
        says = f"is read by {row.side}, and {unit.called} is {unit.role}"
        do = f"Set it for {row.side}."
        units = (unit.name,) if unit.name else ()
        yield Finding("warning", "sides", name, says, do, value.place, units)


def _same(row: Variable, one: str | None, other: str | None) -> bool:
    """Whether two words say the same; of switches 1 and true do."""
    if one is None or other is None:
        return False
    if row.type == "switch":
        on = ("1", "true", "yes", "y", "on", "enable")
        return (one.lower() in on) == (other.lower() in on)
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def _word(text: str | None) -> str:
    return "not set" if text is None else text


def _finding(level: str, row: Variable, says: str, do: str, *units: Unit) -> Finding:
    places = [*dict.fromkeys(u.values[row.key].place for u in units if row.key in u.values), ""]
    also = f" The other is at {places[1]}." if places[1:] and places[1] else ""
    return Finding(
        level, "sides", row.key, says, do + also, places[0], tuple(u.name for u in units if u.name)
    )
