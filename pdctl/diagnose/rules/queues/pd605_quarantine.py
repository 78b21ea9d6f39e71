"""PD605: pages that stay quarantined."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import span
from pdctl.facts.missing import known

_LONG = 30.0


def _long(view: EngineView) -> str:
    """Why its quarantine counts as long; "" when it does not."""
    both = view.pair.both
    if not known(both) or not known(both[0].pages) or not known(both[1].pages):
        return ""
    first, second = both[0].pages, both[1].pages
    if not second.quarantined or first.quarantined > second.quarantined:
        return ""
    if second.quarantined_age is not None:
        age = second.quarantined_age
        return f"the oldest is quarantined for {span(age)}" if age > _LONG else ""
    if sum(p.rooms_open for p in view.peers) == 0 and first.quarantined == second.quarantined:
        return "no room is open with any peer and none was given back between two samples"
    return ""


@rule(
    "PD605",
    "pages quarantined for long",
    Severity.WARNING,
    ["engine.state"],
    echo_of=["PD202", "PD201", "PD501", "PD502", "PD602", "PD606"],
    role="effect",
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Pages of ended requests cannot be used again because a remote write may still reach them.

    What it looks like: held plus free is less than total, capacity shrinks; after a cut transfer the peer
    has neither acknowledged that its writes are quiet nor been fenced.

    What else it could be: a few seconds of quarantine after an abort or a timeout are the rule working.

    What to do: look at the peer: a frozen one (PD202) holds the quarantine until it answers or is
    restarted; `pdctl restart --co CELL` fences both lives and frees everything.
    """
    for view in facts.engines:
        why = _long(view)
        state = view.state
        if not why or not known(state) or not known(state.pages):
            continue
        pages = state.pages
        yield rule.finding(
            view.name,
            f"{view.name} keeps {pages.quarantined} of {pages.total} pages quarantined.",
            [why, f"pages: {pages.free} free, {pages.held} held, {pages.quarantined} quarantined"],
            f"pdctl restart --co {view.member.cell}",
        )
