"""PD667: a router's memory grows with its requests."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.growth import Growth, growth
from pdctl.diagnose.lives import kernel_killed, signal_of
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD667", "router memory grows", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A router keeps something of every request, grows, and is killed for memory again and again.

    What it looks like: resident memory climbs in bursts with traffic and stands when idle; exit 137, a
    restart count that climbs over days.

    What else it could be: a limit that is too small kills it at the same size at once. Growth of an engine
    is PD710.

    What to do: restart it before its limit is reached and upgrade to a version that drops finished
    requests.
    """
    for party in facts.parties:
        found: Growth | None = growth(party.traces)
        if party.role != "router" or found is None:
            continue
        killed = signal_of(party.traces) == 9 or bool(kernel_killed(facts, party))
        many = (party.traces.restarts or 0) > 2
        if not (found.with_work or killed or many):
            continue
        yield rule.finding(
            party.name,
            f"The memory of {party.name} grows with its requests: {found.told}.",
            [found.told, *([f"killed and restarted {party.traces.restarts} times"] if many else [])],
            f"pdctl restart {party.name}; upgrade it",
            since=found.since,
        )
