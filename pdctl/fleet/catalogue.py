"""The variables an engine knows, as data: pdctl checks values without importing the engine."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache

from pdctl.fleet.shipped import shipped_text


@dataclass(frozen=True)
class Variable:
    """`side` says who reads it; `live` whether POST /admin/timeouts changes it while running.

    `name` is the engine's own short name, the key of `timeouts` in /v1/state.
    """

    env: str
    name: str
    unit: str
    low: float
    high: float
    default: float
    side: str
    live: bool
    reason: str

    def problem(self, text: str) -> str:
        """Why `text` is no value of this variable; empty when it is one. The text is not repeated."""
        if self.unit == "switch":
            return "" if text in ("0", "1") else 'must be "0" or "1".'
        try:
            value = float(text)
        except ValueError:
            return f"must be a number of {_unit(self.unit)}, in quotes."
        if not self.low <= value <= self.high:
            return f"must be {self.low:g} to {self.high:g} {_unit(self.unit)}."
        return ""

    def read_by(self, role: str) -> bool:
        """Whether a process of `role` (prefill, decode, both, router) reads it."""
        return side_applies(self.side, role)


def _unit(unit: str) -> str:
    return "seconds" if unit == "s" else unit


def side_applies(side: str, role: str) -> bool:
    """`both` on a value's side is every engine; a whole engine (role both) reads either side's values."""
    if role == "router":
        return side == "router"
    return side in ("both", role) or (role == "both" and side in ("prefill", "decode"))


@cache
def known() -> dict[str, Variable]:
    """Environment name -> variable."""
    text = shipped_text("profiles", "catalogue/engine.toml")
    data = tomllib.loads(text)
    return {env: Variable(env=env, **row) for env, row in data["variables"].items()}


@cache
def deadline_order() -> tuple[tuple[str, str, str], ...]:
    """(inner, outer, why inner < outer): the order in which the deadlines of one request must fire."""
    rows = tomllib.loads(shipped_text("profiles", "catalogue/engine.toml"))["order"]
    return tuple((row["inner"], row["outer"], row["why"]) for row in rows)


@cache
def other_names() -> frozenset[str]:
    """PD_* variables that pdctl itself writes (token files, log level); not for a profile."""
    text = shipped_text("profiles", "catalogue/engine.toml")
    return frozenset(tomllib.loads(text)["other"])
