"""Evidence that is not of the value that stands there, or not of the unit that reads it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope
from pdctl.fleet.profile import Value

_DO = "It is not verified until it is seen to fire: `pdctl deploy`, then `pdctl tune-timeout --verify`."


def problems(scope: Scope, fleet: str) -> Iterator[Finding]:
    """By what the record says of value and place, whatever the dates are and whoever has edited what."""
    for unit in scope.units:
        for name, value in unit.values.items():
            if says := _lacks(fleet, unit.name, value):
                units = (unit.name,) if unit.name else ()
                yield Finding("warning", "proof", f"{name}={value.value}", says, _DO, value.place, units)


def _lacks(fleet: str, unit: str, value: Value) -> str:
    record = value.verified
    if record is None:
        return ""
    if not value.is_verified:
        return f"is not the value that was seen to fire at {record.at}, which is {record.value}"
    if unit and (fleet, unit) not in [(record.fleet, u) for u in record.units]:
        seen = (
            f"on {', '.join(record.units)} of {record.fleet}"
            if record.units
            else "where its record does not say"
        )
        return f"was seen to fire at {record.at} {seen}, and not on {unit} of {fleet}"
    return ""
