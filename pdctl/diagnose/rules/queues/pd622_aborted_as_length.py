"""PD622: an aborted request is answered as a finished one."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import aborts
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count


@rule("PD622", "aborted, and answered as finished", Severity.WARNING, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A request that was aborted during its hand-over is answered 200 with finish_reason "length".

    What it looks like: answers with finish_reason "length" and no or one completion token, HTTP 200, while
    aborts are logged. Error rates look perfect.

    What else it could be: a client that asks for max_tokens 1 gets the same honestly; check what was asked.

    What to do: count finish_reason "length" with completion_tokens 0 as failures and retry them; take a
    build in which the abort reason is kept.
    """
    events = facts.events("room.length_and_empty")
    cancelled = aborts.evidence(*(p.traces for p in facts.engines))
    if not events or not cancelled:
        return
    engines = [p.name for p in facts.engines if aborts.evidence(p.traces)]
    yield rule.finding(
        engines[0],
        f"{count(len(events), 'answer')} with finish_reason length and no text belong to aborted requests: "
        "the abort reason is overwritten, clients see HTTP 200.",
        [*quoted(events, 2), *cancelled],
        "count finish_reason length with 0 completion tokens as an error and retry",
        touches=[*engines, *writers(events)],
        since=since(events),
    )
