"""What was changed before something broke, as the first thing to doubt; pure."""

from __future__ import annotations

import re
from dataclasses import replace

from pdctl.diagnose.facts import Change, Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Severity
from pdctl.diagnose.words import span

_SUSPECT = ("upgraded", "deployed", "setting")
_LIVE = 3  # hypotheses of one answer
_LATE = 60.0  # seconds by which a log line and a person's note of the time differ
_FROM = re.compile(r"^(?P<was>.+?)\s*(?:->|→|=>|\bto\b)\s*(?P<now>.+)$")


def doubted(finding: Finding, facts: Facts) -> Finding:
    """`finding`, with a change from before it as its first hypothesis when its cause is not certain."""
    if finding.certain or finding.severity is Severity.INFO:
        return finding
    found = [_doubt(c, finding) for c in facts.changes if _before(c, finding)]
    if not found:
        return finding
    return replace(finding, hypotheses=(found[-1], *finding.hypotheses)[:_LIVE])


def _before(change: Change, finding: Finding) -> bool:
    """It was made before what is found began, where that is known, and did not end it."""
    mine = not change.party or change.party in finding.touches
    told = bool(change.name or change.value)
    late = change.at is not None and finding.since is not None and change.at > finding.since + _LATE
    return change.what in _SUSPECT and change.cured is None and mine and told and not late


def _doubt(change: Change, finding: Finding) -> Hypothesis:
    ago = (
        f" {span(finding.since - change.at)} before"
        if change.at is not None and finding.since is not None and finding.since > change.at
        else ""
    )
    where = f" of {change.party}" if change.party else ""
    parts = _FROM.match(change.value)
    value = f" {change.value}" if change.value else ""
    was = parts["was"] if parts else "what it was before"
    what = {"setting": "the change", "upgraded": "the upgrade"}.get(change.what, "the deployment")
    return Hypothesis(
        f"{what} of {change.name or 'the release'}{value}{where}{ago} broke it",
        f"go back to {was} on one pair and change nothing else: does it stop there?",
    )
