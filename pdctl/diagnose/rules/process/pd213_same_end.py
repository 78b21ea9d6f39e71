"""PD213: every start fails the same way."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import CLEAN, begins, end_in_words, gravity, raised, runs, signature, told
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count
from pdctl.facts.missing import known

_MANY = 3
_SEVERAL = 2
_APART = 60  # lines between two exceptions that are not of one end, where nothing shows the lives
_RECENT = 300.0
_ASKED = ("pdctl", "hand", "boot")


def _life(begun: list[int], event: Event) -> int:
    return bisect_right(begun, event.order)


def _same(party: Party) -> tuple[list[Event], int]:
    """(the exceptions of the commonest end, one a life; lives of the log that ended)."""
    begun = begins(party.traces)
    hows = {_life(begun, e): e.values["how"] for e in party.traces.of("life.ended")}
    ends: defaultdict[tuple[str, str], dict[int, Event]] = defaultdict(dict)
    last: dict[str, int] = {}
    number = 0
    for event in raised(party.traces):
        sign = signature(event)
        if begun:
            number = _life(begun, event)
        elif event.order - last.get(sign, -_APART - 1) > _APART:
            number += 1
        last[sign] = event.order
        ends[sign, hows.get(number, "")].setdefault(number, event)
    same = max(ends.values(), key=len, default={})
    final = max([*hows, *(len(begun) - runs(party),)])
    # A newer end of another kind: whatever ended those, it is over.
    if begun and same and max(same) < final:
        same = {}
    return list(same.values()), final if begun else len(same)


def _ends_again(party: Party) -> bool:
    """It is meant to run, and neither its last end nor its present life was asked for."""
    unit = party.member.unit
    if party.traces.ended in CLEAN:
        return False
    if not known(unit):
        return True
    asked = runs(party) and unit.started_by in _ASKED
    return unit.wanted and unit.exit not in CLEAN and not asked


def _old(facts: Facts, party: Party) -> bool:
    """Its present life has lasted."""
    unit = party.member.unit
    return runs(party) and known(unit) and facts.at - (unit.started_at or facts.at) > _RECENT


@rule("PD213", "restarted into the same failure", Severity.ERROR, ["engine.reach"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A supervisor starts a server again and again although each start fails in the same way.

    What it looks like: the same last exception after every start, an uptime shorter than the loading of the
    model, a restart count that climbs. Without back-off the loop itself eats the host: memory, disk, sshd.

    What else it could be: different ends each time are load or hardware, and no loop: exception and exit
    must be the same for several lives, the last one too. An end after hours of work is a leak or a fault,
    not this. The exception itself is the cause to mend; when another rule names it, that one leads.

    What to do: stop the restarts first (`systemctl stop`, `docker update --restart=no`), mend what the
    exception names, and give the unit a start limit and a back-off.
    """
    for party in facts.parties:
        same, ended = _same(party)
        times = max(party.traces.restarts or 0, len(begins(party.traces)) - 1)
        always = _SEVERAL <= len(same) >= ended
        if times < _MANY or not (always or len(same) >= _MANY) or not _ends_again(party):
            continue
        again = times if always else len(same)
        yield rule.finding(
            party.name,
            f"{party.name} was restarted {count(again, 'time')} into the same failure: {told(same[0])}.",
            [f"last end: {end_in_words(party.traces)}", *quoted(same)],
            "stop the restarts, mend what the exception names, then set StartLimitBurst and RestartSec",
            since=since(same),
            severity=gravity(party) if _old(facts, party) else None,
        )
