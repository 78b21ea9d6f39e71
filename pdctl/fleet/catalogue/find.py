"""Which family a name is of, which families a unit reads, and the names that there are."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.catalogue.read import FAMILIES, Family, family
from pdctl.fleet.catalogue.variable import Variable

_LIBRARIES = ("nixl", "ucx", "nccl")
# Kind of unit, role router or not -> the files whose arguments it takes.
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


def families_of(kind: str) -> Iterator[Family]:
    """What a unit of this kind reads: its own file first, then the libraries that it loads."""
    own = _OWN[kind]
    yield family(own)
    if own != "router":
        yield from map(family, _LIBRARIES)
