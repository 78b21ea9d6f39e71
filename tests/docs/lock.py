"""pdctl/release/engine.lock: every distribution that the extra `engine` needs, at the version built with.

Read from pyproject.toml, constraints.txt and what is installed here. A requirement that only some machines
have keeps its marker; what PyPI's torch needs beyond (CUDA's libraries) torch itself pins.
"""

from __future__ import annotations

import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
HEAD = (
    "# What engines need, complete. Written by `python -m tests.docs --write` from pyproject.toml and\n"
    "# constraints.txt; pdctl installs it where a host's runtime is index or wheelhouse.\n"
)
# About the machine, so that a lock must keep it; others (python_version, extra) are settled here.
_MACHINE = ("platform_machine", "sys_platform", "platform_system", "os_name")


def pins() -> dict[str, str]:
    """Canonical name -> version of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {str(canonicalize_name(name)): version for name, version in pairs}


def roots() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in project["optional-dependencies"]["engine"]]


def closure() -> dict[str, set[str]]:
    """Canonical name -> the markers under which it is needed; "" among them is always."""
    found: dict[str, set[str]] = {}
    todo = [(r, "") for r in roots()]
    while todo:
        requirement, above = todo.pop()
        extras = requirement.extras or {""}
        if requirement.marker and not any(requirement.marker.evaluate({"extra": e}) for e in extras):
            continue
        name, marker = str(canonicalize_name(requirement.name)), _machine(requirement.marker) or above
        seen = found.setdefault(name, set())
        if marker in seen or "" in seen:
            continue
        seen.add(marker)
        todo += [(r, marker) for line in requires(name) or [] if _wanted(r := Requirement(line), extras)]
    return found


def _wanted(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def _machine(marker: Marker | None) -> str:
    text = str(marker) if marker else ""
    return text if any(word in text for word in _MACHINE) and "extra" not in text else ""


def engine_lock() -> str:
    """The lock file's text; KeyError for a distribution that constraints.txt does not pin."""
    lines = []
    for name, markers in sorted(closure().items()):
        condition = "" if "" in markers else " ; " + " or ".join(sorted(markers))
        lines.append(f"{name}=={pins()[name]}{condition}\n")
    return HEAD + "".join(lines)
