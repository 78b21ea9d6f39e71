"""A finding in this fleet's own names: its cell, and the files that hold what is wrong; pure."""

from __future__ import annotations

import re
from dataclasses import replace

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding

_CELL = re.compile(r"\bCELL\b")
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
_CONFIG = "PD1"  # findings of how things were configured


def named(finding: Finding, facts: Facts) -> Finding:
    """CELL becomes the cell of the engines that the finding touches, or the only one that there is; what was
    configured is followed by the file and line where.
    """
    touched = {e.member.cell for e in facts.engines if e.name in finding.touches}
    cells = touched or {e.member.cell for e in facts.engines}
    placed = replace(finding, evidence=(*finding.evidence, *_places(finding, facts)))
    if len(cells) != 1:
        return placed
    cell = cells.pop()

    def filled(text: str) -> str:
        return _CELL.sub(lambda _: cell, text)

    return replace(
        placed,
        remedy=filled(finding.remedy),
        hypotheses=tuple(replace(h, test=filled(h.test)) for h in finding.hypotheses),
    )


def _places(finding: Finding, facts: Facts) -> list[str]:
    """Lines that say where a configuration finding's values stand, or else where its units are declared."""
    if not finding.code.startswith(_CONFIG):
        return []
    text = "\n".join((finding.summary, *finding.evidence))
    members = [m for m in facts.members() if m.name in finding.touches and m.places]
    values = [
        (f"{name} of {m.name}: {m.places[name]}", m.places[name])
        for m in members
        for name in dict.fromkeys(_VARIABLE.findall(text))
        if name in m.places
    ]
    units = [(f"{m.name} is declared in {m.places['']}", m.places[""]) for m in members if "" in m.places]
    return [line for line, at in values or units if at not in text]
