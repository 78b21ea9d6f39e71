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
    """PD_* variables that are in no profile: token files, which pdctl writes, and a unit's log level."""
    return frozenset(document("engine")["other"])


def no_profile(env: str) -> str:
    """Why one of `other_names` is in no profile."""
    if env in document("engine")["unit"]:
        return "is of one unit: set it in `env` of the unit in the fleet file."
    return "is written by pdctl for each unit and cannot be in a profile."


def unit_problem(env: str, text: str) -> str:
    """Why `env` of a unit cannot give one of `other_names` this value; empty when it can."""
    choices = document("engine")["unit"].get(env)
    if choices is None:
        return "is written by pdctl for each unit and cannot be set."
    return "" if text.lower() in choices else f"must be one of {', '.join(choices)}."
