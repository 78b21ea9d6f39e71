"""Deadlines of one request that would fire in the wrong order: the outer one before the inner one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdctl.fleet.catalogue import deadline_order
from pdctl.fleet.catalogue.timeouts import deadlines, orders
from pdctl.fleet.catalogue.variable import Variable
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.scope import Edge, Scope, Unit


@dataclass(frozen=True)
class Deadline:
    """A timeout as one unit reads it; `place` is `file:line`, empty for a default."""

    unit: Unit
    key: str
    seconds: float
    place: str

    def __str__(self) -> str:
        of = f" of {self.unit.called}" if self.unit.name else ""
        return f"{self.key}={self.seconds:g}{'' if self.place else ' (default)'}{of}"


@dataclass(frozen=True)
class Disorder:
    inner: Deadline
    outer: Deadline
    why: str

    @property
    def place(self) -> str:
        return self.inner.place or self.outer.place

    @property
    def other_place(self) -> str:
        """Where the outer one stands, when both stand somewhere."""
        return self.outer.place if self.inner.place else ""

    def __str__(self) -> str:
        return f"{self.inner} must be below {self.outer}: {self.why}."


def problems(scope: Scope) -> Iterator[Finding]:
    for edge in scope.edges:
        for found in disorder(edge):
            level = "error" if edge.prefill.kind == "bundled" else "warning"
            says = f"must be below {found.outer}: {found.why}"
            at = f" The other is at {found.other_place}." if found.other_place else ""
            do = f"Lower the one or raise the other.{at}"
            units = dict.fromkeys(d.unit.name for d in (found.inner, found.outer) if d.unit.name)
            yield Finding(level, "chain", str(found.inner), says, do, found.place, tuple(units))


def disorder(edge: Edge) -> Iterator[Disorder]:
    """Every pair of deadlines of one edge that is out of order."""
    for inner, outer, why in _orders(edge):
        below, above = _deadline(edge, inner), _deadline(edge, outer)
        if below is not None and above is not None and below.seconds >= above.seconds:
            yield Disorder(below, above, why)


Names = tuple[str, ...]


def _orders(edge: Edge) -> Iterator[tuple[Names, Names, str]]:
    """(names of the inner, names of the outer, why); the bundled engine's own order is by its names."""
    kind = edge.prefill.kind
    if kind == "bundled":
        for inner, outer, why in deadline_order():
            yield (inner,), (outer,), why
        return
    kinds = {kind, edge.router.kind} if edge.router else {kind}
    for order in orders():
        if kind in order.kinds:
            below, above = deadlines()[order.inner].names, deadlines()[order.outer].names
            yield (
                tuple(n for k in kinds for n in below.get(k, ())),
                tuple(n for k in kinds for n in above.get(k, ())),
                order.why,
            )


def _deadline(edge: Edge, names: Names) -> Deadline | None:
    """The first of `names` that is set, else the first with a default. Of one that both engines read, the
    prefill's, where a wait for a batch is."""
    read = [(unit, row) for name in names for unit, row in _readers(edge, name)]
    for unit, row in read:
        given = unit.values.get(row.key)
        if given is not None and (seconds := _seconds(given.value)) is not None:
            return Deadline(unit, row.key, seconds, given.place)
    for unit, row in read:
        if (text := unit.text(row)) is not None and (seconds := _seconds(text)) is not None:
            return Deadline(unit, row.key, seconds, "")
    return None


def _readers(edge: Edge, name: str) -> Iterator[tuple[Unit, Variable]]:
    for unit in edge.units:
        if (row := unit.row(name)) is not None:
            yield unit, row


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
