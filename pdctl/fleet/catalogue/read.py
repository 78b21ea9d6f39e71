"""Read one file of the catalogue, once."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from pdctl.fleet.catalogue.risk import Risk
from pdctl.fleet.catalogue.variable import ONE_OR_ZERO, Setting, Variable
from pdctl.fleet.shipped import shipped_text

# File -> how the names of its variables begin.
FAMILIES: dict[str, tuple[str, ...]] = {
    "engine": ("PD_",),
    "router": (),
    "sglang": ("SGLANG_", "SGL_"),
    "vllm": ("VLLM_",),
    "nixl": ("NIXL_",),
    "ucx": ("UCX_",),
    "nccl": ("NCCL_",),
}


@dataclass(frozen=True)
class Family:
    """One file: `variables` and `arguments` by name; `names` are all that exist in `release`, None when the
    list is not known to be whole. `sources` are in words."""

    name: str
    about: str
    release: str
    variables: dict[str, Variable]
    arguments: dict[str, Variable]
    risks: tuple[Risk, ...]
    names: frozenset[str] | None


@cache
def document(name: str) -> dict[str, Any]:
    """`profiles/catalogue/NAME.toml` as it stands."""
    return tomllib.loads(shipped_text("profiles", f"catalogue/{name}.toml"))


@cache
def family(name: str) -> Family:
    data = document(name)
    make = Setting if name == "engine" else Variable
    variables = {key: _row(make, key, row, data) for key, row in data.get("variables", {}).items()}
    arguments = {key: _row(Variable, key, row, data) for key, row in data.get("arguments", {}).items()}
    names = frozenset(variables) if name == "engine" else None
    if "names" in data:
        names = frozenset(variables) | _names(data["names"])
    risks = tuple(Risk.read(row) for row in data.get("risk", ()))
    release = f"{data['about']} {data.get('names_of', '')}".strip()
    return Family(name, data["about"], release, variables, arguments, risks, names)


def _row(make: type[Variable], key: str, row: dict[str, Any], data: dict[str, Any]) -> Variable:
    fields = dict(row)
    fields["choices"] = tuple(row.get("choices", ()))
    fields["source"] = data["sources"][row["source"]]
    return make(key=key, spellings=tuple(data.get("switch", ONE_OR_ZERO)), **fields)


def _names(file: str) -> frozenset[str]:
    lines = shipped_text("profiles", f"catalogue/{file}").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))
