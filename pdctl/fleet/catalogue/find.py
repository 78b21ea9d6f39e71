"""Which family a name is of, which families a unit reads, and the names that there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from pdctl.fleet.catalogue.read import FAMILIES, Family, family
from pdctl.fleet.catalogue.variable import Variable

# How alike two names must be for the one to be the other misspelled, of 1.
_NEAR, _NEAR_ARGUMENT = 0.84, 0.9
_LIBRARIES = ("nixl", "ucx", "nccl")
# Kind of unit, role router or not -> the files whose arguments it takes.
ENGINES = ("bundled", "sglang", "vllm")
_OWN = {"bundled": "engine", "sglang": "sglang", "vllm": "vllm", "sglang-router": "router"}


def family_of(variable: str) -> Family | None:
    """By how the name begins; None for a name of no family here."""
    for name, prefixes in FAMILIES.items():
        if prefixes and variable.startswith(prefixes):
            return family(name)
    return None


def find(variable: str) -> Variable | None:
    """The row of an environment variable."""
    found = family_of(variable)
    return found.variables.get(variable) if found else None


def resembles(variable: str) -> str:
    """The name of its family that `variable` may be a misspelling of; empty when it is like none."""
    of = family_of(variable)
    near = difflib.get_close_matches(variable, of.names or of.variables, 1, _NEAR) if of else []
    return near[0] if near else ""


def like_argument(argument: str, kind: str) -> str:
    """The argument of a kind of unit that `argument` may be a misspelling of; empty when it is one or is like
    none. Not all that there are stand in the catalogue, so that it takes more likeness than a variable's.
    """
    known = [name for of in families_of(kind) for name in of.arguments]
    above, _, own = argument.rpartition(".")
    among = {name.rpartition(".")[2]: name for name in known if name.rpartition(".")[0] == above}
    near = difflib.get_close_matches(own, among, 1, _NEAR_ARGUMENT)
    return "" if argument in known or not near else among[near[0]]


def kinds_of(variables: Iterable[str]) -> tuple[str, ...]:
    """The kinds of engine that values are for, by their names; the bundled one where none says so."""
    families = {found.name for name in variables if (found := family_of(name)) is not None}
    return tuple(kind for kind in ENGINES if _OWN[kind] in families) or ENGINES[:1]


def is_for(variable: str, kind: str) -> bool:
    """Whether an engine of this kind may read it: it is not another kind's own."""
    found, own = family_of(variable), {_OWN[other] for other in ENGINES if other != kind}
    return found is None or found.name not in own


def families_of(kind: str) -> Iterator[Family]:
    """What a unit of this kind reads: its own file first, then the libraries that it loads."""
    own = _OWN[kind]
    yield family(own)
    if own != "router":
        yield from map(family, _LIBRARIES)
