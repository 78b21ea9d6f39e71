"""PD223: a supervisor ends a start that takes longer than it allows."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import fatal
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD223", "start longer than allowed", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server was ended while it loaded, because its start took longer than its supervisor waits.

    What it looks like: "start operation timed out. Terminating.", a startup probe that fails, an end in the
    middle of loading weights or capturing graphs, no exception.

    What else it could be: an exception before it is the cause. A start that waits for a peer or a lock
    never ends, however long it may take: the last line of its log says what it does.

    What to do: raise TimeoutStartSec (or the startup probe's failures times its period) above the longest
    load seen, or load from a local disk.
    """
    for party in facts.parties:
        lines = list(party.traces.of("process.start_timeout"))
        if not lines or fatal(party.traces):
            continue
        yield rule.finding(
            party.name,
            f"{party.name} is ended while it starts: its start takes longer than its supervisor waits.",
            quoted(lines),
            "raise TimeoutStartSec (or the startup probe's time) above the longest load",
            since=since(lines),
        )
