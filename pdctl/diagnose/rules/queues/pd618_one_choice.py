"""PD618: of n choices only one is handed over."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.expiries import expiries
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, listed


@rule("PD618", "n>1: one choice is handed over, its siblings expire", Severity.WARNING, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A request with n>1 becomes several on the prefill, and only one choice's parameters reach decode.

    What it looks like: answers are fine; about one lease later the prefill releases expired KV, and every
    id among them has a child prefix (0_, 1_, …).

    What else it could be: expiries of ordinary ids as well are decode that did not pull (PD616).

    What to do: send n=1 and repeat the request; take a build that hands over every choice.
    """
    found = expiries(facts)
    if not found.only_children:
        return
    names = writers(found.unread)
    yield rule.finding(
        listed(names),
        f"{listed(names)} expires KV of {count(len(found.children), 'sibling choice')} only: requests with "
        "n>1 are handed over for one choice, the others' KV is never fetched. No transport fault.",
        quoted([*found.unread, *found.late]),
        "send n=1 and repeat the request instead",
        touches=[*names, *(d.name for d in facts.engines if d.role == "decode")],
        since=since(found.unread),
    )
