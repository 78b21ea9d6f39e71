"""The bundled engine's own variables, and the order of its deadlines."""

from __future__ import annotations

from functools import cache
from typing import cast

from pdctl.fleet.catalogue.read import document, family
from pdctl.fleet.catalogue.variable import Setting


def known() -> dict[str, Setting]:
    """Environment name -> variable."""
    return cast(dict[str, Setting], family("engine").variables)


@cache
def deadline_order() -> tuple[tuple[str, str, str], ...]:
    """(inner, outer, why inner < outer): the order in which the deadlines of one request must fire."""
    return tuple((row["inner"], row["outer"], row["why"]) for row in document("engine")["order"])


@cache
def other_names() -> frozenset[str]:
    """PD_* variables that pdctl itself writes (token files, log level); not for a profile."""
    return frozenset(document("engine")["other"])
