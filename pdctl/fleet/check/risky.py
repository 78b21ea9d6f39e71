"""Values that are known to hurt: the catalogue's rows of risks."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.catalogue.find import families_of
from pdctl.fleet.catalogue.risk import Held, Risk
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Scope, Unit


def problems(scope: Scope) -> Iterator[Finding]:
    apart = {u.name for e in scope.edges if e.across_hosts for u in (e.prefill, e.decode)}
    for unit in scope.units:
        held = _held(unit, bool(unit.name) and unit.name in apart)
        said: set[str] = set()
        for family in families_of(unit.kind):
            for risk in family.risks:
                # Of two rows for one name the first, which is the worse, is enough.
                if risk.name not in said and unit.row(risk.name) and risk.holds(held):
                    said.add(risk.name)
                    yield _finding(unit, risk, held)


def _held(unit: Unit, across_hosts: bool) -> Held:
    given = {name: value.value for name, value in unit.values.items()}
    default = {r.key: t for r in unit.rows() if not r.fork and (t := r.default_text) is not None}
    return Held(unit.role, given, default, across_hosts)


def _finding(unit: Unit, risk: Risk, held: Held) -> Finding:
    given = next((unit.values[n] for n in (risk.name, *risk.with_) if n in unit.values), None)
    value, set_here = held.value(risk.name), risk.name in unit.values
    stands = value is not None and risk.lacks != risk.name
    name = f"{risk.name}={value}{'' if set_here else ' (default)'}" if stands else risk.name
    units = (unit.name,) if unit.name else ()
    return Finding(risk.level, "risky", name, risk.says, risk.do, given.place if given else "", units)
