"""PD204: a unit ended and its supervisor brought it back a moment ago."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import span
from pdctl.facts.missing import known
from pdctl.facts.unit import meaning

_RECENT = 300.0
_MANY = 3


@rule("PD204", "engine ended and came back", Severity.WARNING, ["units"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine ended without being asked to and was restarted by its supervisor within the last minutes.

    What it looks like: everything is Ready again, requests that were on it have failed, and on engines
    that keep stale peer state nothing works from then on (PD501).

    What else it could be: a restart by `pdctl` is asked for and not reported. Three in a short time are a
    crash loop (PD203).

    What to do: find out why it ended with `pdctl logs NAME`; SIGKILL without a person behind it is nearly
    always memory.
    """
    for member in facts.members():
        unit = member.unit
        if not known(unit) or not unit.wanted or unit.restarts >= _MANY:
            continue
        since = unit.started_at or unit.since or facts.at
        age = facts.at - since
        waits = unit.state == "backoff"
        if waits or (unit.restarts and age < _RECENT):
            back = "will be started again in a moment" if waits else f"was started again {span(age)} ago"
            said = f"{member.name} ended unasked and {back}: {meaning(unit.exit)}."
            evidence = [f"last end: {meaning(unit.exit)}", f"restarts that nobody asked for: {unit.restarts}"]
            remedy = f"pdctl logs {member.name}"
            yield rule.finding(member.name, said, evidence, remedy, since=since)
