"""One row of the catalogue: what a variable or a launch argument may be, who reads it, and what it breaks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

NUMBERS = ("seconds", "milliseconds", "number", "count", "port")
TYPES = (*NUMBERS, "switch", "choice", "text", "list", "json", "time")
READS = ("live", "start", "import", "capture")
ONE_OR_ZERO = ("0", "1")
_TIME = re.compile(r"\d+(\.\d+)?(m|s|ms|us|ns)|inf|auto")
_UNITS = {"s": "seconds", "ms": "milliseconds", "": "whole numbers"}


@dataclass(frozen=True, kw_only=True)
class Variable:
    """`key` is the variable, or the argument with its dashes. `side` says who reads it: prefill, decode,
    both or router; `agree` whether the two sides of an edge must hold the same value, `unique` whether no two
    engines of one host may.

    `read` is when: live (POST /admin/timeouts changes it), start, import (of the module that uses it), or
    capture (it is part of captured graphs). `default` is what stands where nothing is set, None when there is
    none or it is not known. `low` and `high` bound numbers, both ends included, None is unbounded; `whole`
    numbers have no fraction. `spellings` are a switch's words. `fork`: builds of a fork read it and no
    others, so that where it is not set nothing is known to stand.
    """

    key: str
    type: str
    side: str
    does: str
    wrong: str
    source: str
    read: str = "start"
    unit: str = ""
    low: float | None = None
    high: float | None = None
    default: float | str | None = None
    whole: bool = False
    agree: bool = False
    unique: bool = False
    fork: bool = False
    choices: tuple[str, ...] = ()
    any_case: bool = False
    spellings: tuple[str, ...] = ONE_OR_ZERO

    @property
    def live(self) -> bool:
        return self.read == "live"

    @property
    def default_text(self) -> str | None:
        """The default as it would be written."""
        if self.default is None or isinstance(self.default, str):
            return self.default
        return f"{self.default:g}"

    def problem(self, text: str) -> str:
        """Why `text` is no value of this variable; empty when it is one. The text is not repeated."""
        if self.type in NUMBERS:
            return self._number_problem(text)
        if self.type == "switch":
            good = text.lower() in self.spellings
            return "" if good else "must be " + " or ".join(f'"{word}"' for word in self.spellings) + "."
        if self.type == "choice":
            words = [c.lower() for c in self.choices] if self.any_case else self.choices
            good = (text.lower() if self.any_case else text) in words
            return "" if good else f"must be one of {', '.join(self.choices)}."
        if self.type == "time":
            return "" if _TIME.fullmatch(text) else "must be a number with m, s, ms, us or ns, inf or auto."
        if self.type == "list":
            return "" if all(text.split(",")) else "must be words with commas between them."
        return self._json_problem(text) if self.type == "json" else ""

    def read_by(self, role: str) -> bool:
        """Whether a process of `role` (prefill, decode, both, router) reads it."""
        return side_applies(self.side, role)

    def _number_problem(self, text: str) -> str:
        unit = _UNITS.get(self.unit, self.unit)
        try:
            value = float(text)
        except ValueError:
            return f"must be a number of {unit}." if self.unit else "must be a number."
        if (self.whole or self.type in ("count", "port")) and not value.is_integer():
            return "must be a whole number."
        low = value if self.low is None else self.low
        high = value if self.high is None else self.high
        if low <= value <= high:
            return ""
        if self.low is not None and self.high is not None:
            return f"must be {self.low:g} to {self.high:g}{f' {unit}' if self.unit else ''}."
        return f"must be at least {self.low:g}." if value < low else f"must be at most {self.high:g}."

    def _json_problem(self, text: str) -> str:
        try:
            good = isinstance(json.loads(text), dict)
        except ValueError:
            good = False
        return "" if good else "must be a JSON object."


@dataclass(frozen=True, kw_only=True)
class Setting(Variable):
    """A variable of the bundled engine; `name` is its own short name, the key of `timeouts` in /v1/state."""

    name: str
    low: float
    high: float
    default: float


def side_applies(side: str, role: str) -> bool:
    """`both` on a value's side is every engine; a whole engine (role both) reads either side's values."""
    if role == "router":
        return side == "router"
    return side in ("both", role) or (role == "both" and side in ("prefill", "decode"))
