"""The order of deadlines over a whole fleet: what every edge and the router would be started with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import deadline_order, known
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.profile import Value, engine_env


@dataclass(frozen=True)
class _Deadline:
    """A variable as one unit reads it; `given` is None where the default stands."""

    unit: str
    env: str
    given: Value | None

    @property
    def seconds(self) -> float:
        return known()[self.env].default if self.given is None else float(self.given.value)

    @property
    def place(self) -> str:
        """`file:line`, of an origin that may name its profile too; empty for a default."""
        origin = self.given.origin if self.given else ""
        return origin.partition("(")[2].removesuffix(")") or origin

    def __str__(self) -> str:
        return f"{self.env}={self.seconds:g} of {self.unit}"


def refuse_disorder(fleet: Fleet) -> None:
    """ConfigError with file and line when a deadline of an edge is not below the one that waits for it."""
    if problems := list(dict.fromkeys(_problems(fleet))):
        hint = "Change one of the two with `pdctl profile set`, or in its file."
        raise ConfigError(
            "out_of_order", f"Timeouts of {fleet.name} are out of order.", hint, details=problems
        )


def _problems(fleet: Fleet) -> Iterator[str]:
    env = {unit.name: engine_env(fleet, unit) for unit in fleet.units() if unit.kind == "bundled"}
    for edge in fleet.edges():
        read = _deadlines([u for u in (*edge, fleet.router) if u.name in env], env)
        for inner, outer, why in deadline_order():
            if inner in read and outer in read and read[inner].seconds >= read[outer].seconds:
                yield _sentence(read[inner], read[outer], why)


def _deadlines(units: list[Engine | Router], env: dict[str, dict[str, Value]]) -> dict[str, _Deadline]:
    """By variable; of one that both engines read, the prefill's, where a wait for a batch is."""
    out: dict[str, _Deadline] = {}
    for unit in units:
        for name, variable in known().items():
            if variable.read_by(unit.role):
                out.setdefault(name, _Deadline(unit.name, name, env[unit.name].get(name)))
    return out


def _sentence(inner: _Deadline, outer: _Deadline, why: str) -> str:
    places = [p for p in (inner.place, outer.place) if p] or ["defaults"]
    also = f" The other is at {places[1]}." if len(places) > 1 else ""
    return f"{places[0]}: {inner} must be below {outer}: {why}.{also}"
