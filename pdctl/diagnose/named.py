"""The cell's own name in a remedy or a test, where a rule could not know it; pure."""

from __future__ import annotations

import re
from dataclasses import replace

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding

_CELL = re.compile(r"\bCELL\b")


def named(finding: Finding, facts: Facts) -> Finding:
    """CELL becomes the cell of the engines that the finding touches, or the only one that there is."""
    touched = {e.member.cell for e in facts.engines if e.name in finding.touches}
    cells = touched or {e.member.cell for e in facts.engines}
    if len(cells) != 1:
        return finding
    cell = cells.pop()

    def filled(text: str) -> str:
        return _CELL.sub(lambda _: cell, text)

    return replace(
        finding,
        remedy=filled(finding.remedy),
        hypotheses=tuple(replace(h, test=filled(h.test)) for h in finding.hypotheses),
    )
