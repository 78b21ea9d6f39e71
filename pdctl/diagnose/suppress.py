"""Findings that an operator knows of and accepts for a while: out of the verdict, not out of sight; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pdctl.diagnose.facts import Suppression
from pdctl.diagnose.rule import Finding


@dataclass(frozen=True)
class Muted:
    """A finding and why it does not count."""

    finding: Finding
    by: Suppression


def sift(
    findings: Sequence[Finding], suppressions: Sequence[Suppression], at: float
) -> tuple[list[Finding], list[Muted]]:
    """Those that count, and those that a suppression in force covers."""
    kept: list[Finding] = []
    muted: list[Muted] = []
    for finding in findings:
        by = next((s for s in suppressions if s.until > at and _covers(s, finding)), None)
        if by is None:
            kept.append(finding)
        else:
            muted.append(Muted(finding, by))
    return kept, muted


def _covers(suppression: Suppression, finding: Finding) -> bool:
    """Everything that the finding touches has to match: news of another engine is no old news."""
    named = finding.touches or {finding.subject}
    return suppression.code == finding.code and all(fnmatchcase(n, suppression.subject) for n in named)
