"""PD203: a unit that keeps ending."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, span
from pdctl.facts.missing import known

# Rules that say why it keeps ending.
_ENDS = ("PD206", "PD213", "PD210", "PD215", "PD217", "PD219", "PD222")
_MANY = 3
_RECENT = 300.0


@rule("PD203", "crash loop", Severity.ERROR, ["units"], echo_of=_ENDS)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The unit was restarted again and again by its supervisor, or waits for its next try.

    What it looks like: it is up whenever one looks and its uptime is always small; its peers link and lose
    it in turns, requests fail in bursts.

    What else it could be: restarts that an operator asked for are not counted. One restart with a long
    life after it is history (PD204 while it is recent).

    What to do: the exit code is the first lead and `pdctl logs NAME` the second; a crash loop after a
    deploy is mended by correcting the profile or the fleet file and `pdctl deploy`.
    """
    for member in facts.members():
        unit = member.unit
        if not known(unit) or not unit.wanted:
            continue
        young = unit.started_at is not None and facts.at - unit.started_at < _RECENT
        if unit.restarts >= _MANY and (young or unit.state == "backoff"):
            evidence = [
                f"{count(unit.restarts, 'restart')} that nobody asked for",
                f"last end: {unit.last_end()}",
                f"state {unit.state}",
            ]
            if unit.started_at is not None:
                evidence.append(f"this life is {span(facts.at - unit.started_at)} old")
            said = f"{member.name} keeps ending: {unit.last_end()}."
            yield rule.finding(member.name, said, evidence, f"pdctl logs {member.name}", since=unit.since)
