"""A row of the live scoreboard: a fault, what shows that it took effect, and the verdict that is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.cases.live.fleet import Fleet

# Injects, yields what shows that the fault took effect, and mends after it.
Fault = Callable[[Fleet], Iterator[str]]


class Skip(Exception):
    """Why a row cannot be played on this machine."""


@dataclass(frozen=True)
class Row:
    """`codes`: one of them leads, () when nothing may be above info. `says` are words of its summary, and
    `effects` hang on it.
    """

    name: str
    fault: Fault
    codes: tuple[str, ...]
    subject: str
    says: str
    effects: tuple[str, ...] = ()


ROWS: list[Row] = []


def row(
    name: str, *codes: str, subject: str = "", says: str = "", effects: tuple[str, ...] = ()
) -> Callable[[Fault], Fault]:
    def keep(fault: Fault) -> Fault:
        ROWS.append(Row(name, fault, codes, subject, says, effects))
        return fault

    return keep
