"""One thing that is wrong with a value, where it stands, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace

LEVELS = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """`kind` is the file of this folder that found it. `place` is `file:line`, "" for a default. `units` read
    the value, none when no unit of the fleet does."""

    level: str
    kind: str
    name: str
    says: str
    do: str
    place: str = ""
    units: tuple[str, ...] = ()

    @property
    def bad(self) -> bool:
        return self.level != "info"

    def document(self) -> dict[str, object]:
        return {
            "level": self.level,
            "kind": self.kind,
            "name": self.name,
            "place": self.place or None,
            "units": list(self.units),
            "says": self.says,
            "do": self.do,
        }


def merged(findings: list[Finding]) -> list[Finding]:
    """What is said of several units is said once; worst first, then by place."""
    units: dict[Finding, dict[str, None]] = {}
    for f in findings:
        units.setdefault(replace(f, units=()), {}).update(dict.fromkeys(f.units))
    made = [replace(f, units=tuple(names)) for f, names in units.items()]
    return sorted(made, key=lambda f: (LEVELS.index(f.level), _order(f.place), f.name))


def _order(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdigit() else (place, 0)
