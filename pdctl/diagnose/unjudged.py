"""What was not judged, as far as an operator can do something about it; pure."""

from __future__ import annotations

from collections import defaultdict

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.needs import NO_ENVIRON, NO_LOG, NO_READINGS, NO_SETTINGS, QUIET
from pdctl.diagnose.report import Report
from pdctl.diagnose.words import count, few, listed

# What a person could add or make readable, by the reason that it was missed for.
_TO_GIVE = {NO_LOG: "log", NO_READINGS: "metrics", NO_SETTINGS: "command line", NO_ENVIRON: "environment"}


def unjudged(report: Report) -> list[str]:
    """Sentences: what failed to be read, then what would let more rules judge, then a number."""
    skipped = report.ran.skipped
    if not skipped:
        return []
    failed: dict[str, set[str]] = defaultdict(set)
    wanted: dict[str, list[str]] = defaultdict(list)
    for skip in skipped:
        if skip.reason in _TO_GIVE:
            if skip.subject and not _tells_itself(report.facts, skip.subject):
                wanted[_TO_GIVE[skip.reason]].append(skip.subject)
        elif skip.reason not in QUIET:
            failed[f"{skip.subject or 'fleet'}: {skip.reason}"].add(skip.code)
    lines = [f"{why} ({count(len(codes), 'rule')})" for why, codes in sorted(failed.items())]
    given = [f"{what} of {few(dict.fromkeys(names))}" for what, names in wanted.items()]
    more = f"; more with {listed(sorted(given))}" if given else ""
    rules = len({s.code for s in skipped})
    return [*lines, f"{count(rules, 'rule')} could not look at everything{more}"]


def _tells_itself(facts: Facts, name: str) -> bool:
    """The bundled engine and router say in their state what others say in logs and flags."""
    view = facts.party(name)
    return view is not None and view.traces.kind == "bundled"
