"""Values that are known to hurt, as rows of the catalogue: a condition and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Held:
    """What one process holds: variables and arguments as text, `default` those that stand where nothing is
    set. `across_hosts`: a peer of it is on another host."""

    role: str
    given: Mapping[str, str]
    default: Mapping[str, str] = field(default_factory=dict)
    across_hosts: bool = False

    def value(self, name: str) -> str | None:
        return self.given.get(name, self.default.get(name))


@dataclass(frozen=True)
class Risk:
    """Conditions hold together: `given` is set at all, `is_` one of these words, `above` a number larger than
    this, `contains` these characters; `with_` other names have one of these words, `also` another name is
    set, `lacks` a name is not set; `roles` it is read by one of these, `across_hosts` a peer is on another
    host.
    """

    name: str
    level: str
    says: str
    do: str
    given: bool = False
    is_: tuple[str, ...] = ()
    above: float | None = None
    contains: str = ""
    with_: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    also: str = ""
    lacks: str = ""
    roles: tuple[str, ...] = ()
    across_hosts: bool = False

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Risk:
        fields = {("is_" if k == "is" else "with_" if k == "with" else k): v for k, v in row.items()}
        fields["is_"] = tuple(row.get("is", ()))
        fields["roles"] = tuple(row.get("roles", ()))
        fields["with_"] = {name: tuple(words) for name, words in row.get("with", {}).items()}
        return cls(**fields)

    def holds(self, held: Held) -> bool:
        if self.roles and held.role not in self.roles:
            return False
        if self.across_hosts and not held.across_hosts:
            return False
        if self.lacks and self.lacks in held.given:
            return False
        if self.also and self.also not in held.given:
            return False
        if any((held.value(name) or "").lower() not in words for name, words in self.with_.items()):
            return False
        return self._value_holds(held.value(self.name), self.name in held.given)

    def _value_holds(self, value: str | None, given: bool) -> bool:
        if self.given and not given:
            return False
        if self.is_ and not any(_same(value or "", word) for word in self.is_):
            return False
        if self.above is not None:
            number = _number(value)
            return number is not None and number > self.above
        return not self.contains or _plain(self.contains) in _plain(value or "")


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _same(text: str, word: str) -> bool:
    """Of numbers the value counts: 0512 is 512."""
    mine, number = _number(text), _number(word)
    return mine == number if mine is not None and number is not None else text.lower() == word


def _plain(text: str) -> str:
    return "".join(text.split())
