"""PD213: every start fails the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import end_in_words, raised, signature, starts, told
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count

_MANY = 3


def _same(party: Party) -> list[Event]:
    """The exceptions of the commonest signature, one a life where the log shows lives."""
    causes = raised(party.traces)
    common = Counter(map(signature, causes)).most_common(1)
    return [e for e in causes if signature(e) == common[0][0]] if common else []


@rule("PD213", "restarted into the same failure", Severity.ERROR, ["engine.reach"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A supervisor starts a server again and again although each start fails in the same way.

    What it looks like: the same last exception after every start, an uptime shorter than the loading of the
    model, a restart count that climbs. Without back-off the loop itself eats the host: memory, disk, sshd.

    What else it could be: different ends each time are load or hardware. An end after hours of work is a
    leak or a fault, not this. The exception itself is the cause to mend; when another rule names it, that
    one leads.

    What to do: stop the restarts first (`systemctl stop`, `docker update --restart=no`), mend what the
    exception names, and give the unit a start limit and a back-off.
    """
    for party in facts.parties:
        same, lives = _same(party), starts(party.traces)
        times = max(party.traces.restarts or 0, lives - 1)
        repeated = len(same) >= _MANY and lives >= _MANY
        if times < _MANY or not (repeated or (same and (party.traces.restarts or 0) >= _MANY)):
            continue
        yield rule.finding(
            party.name,
            f"{party.name} was restarted {count(times, 'time')} into the same failure: {told(same[0])}.",
            [f"last end: {end_in_words(party.traces)}", *quoted(same)],
            "stop the restarts, mend what the exception names, then set StartLimitBurst and RestartSec",
            since=since(same),
        )
