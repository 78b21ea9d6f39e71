"""The deadlines of one request under one name each, and what each kind of engine and router calls them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pdctl.fleet.catalogue.read import document


@dataclass(frozen=True)
class Deadline:
    """`names` are by kind of unit: the variables and arguments that set it, in the order in which they count;
    `absent` says in a sentence why a kind has none. `notes` are what else to know of a kind's."""

    name: str
    means: str
    names: dict[str, tuple[str, ...]]
    absent: dict[str, str]
    notes: dict[str, str]


@dataclass(frozen=True)
class Order:
    """`inner` must fire before `outer` on fleets whose engines are of one of `kinds`."""

    inner: str
    outer: str
    kinds: tuple[str, ...]
    why: str


@cache
def deadlines() -> dict[str, Deadline]:
    found = {}
    for name, row in document("timeouts")["timeouts"].items():
        names = {kind: tuple(given) for kind, given in row["names"].items() if isinstance(given, list)}
        absent = {kind: given for kind, given in row["names"].items() if isinstance(given, str)}
        found[name] = Deadline(name, row["means"], names, absent, row.get("notes", {}))
    return found


@cache
def orders() -> tuple[Order, ...]:
    rows = document("timeouts")["order"]
    return tuple(Order(row["inner"], row["outer"], tuple(row["kinds"]), row["why"]) for row in rows)
