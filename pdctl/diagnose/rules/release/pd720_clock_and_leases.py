"""PD720: deadlines and leases on wall clocks that differ."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_OFF = 1.0  # seconds of offset that a lease of seconds feels


@rule("PD720", "leases expire by a wrong clock", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Leases or deadlines count on wall clocks, and a clock is off or was set back.

    What it looks like: a lease with a negative rest, every call from one host "DeadlineExceeded" and the
    other direction fine; failures follow the host, not the service.

    What else it could be: deadlines that are exceeded from every host are a slow service or store (PD668).
    A difference of clocks that nothing counts on only confuses ages (PD801).

    What to do: `chronyc makestep` on the host that is off, and see `chronyc tracking` in every host; count
    deadlines on one monotonic clock.
    """
    lines = facts.events("store.negative_ttl", "store.deadline")
    negative = [e for e in lines if e.sign == "store.negative_ttl"]
    off = {
        h.name: h.traces.numbers["clock_offset"] for h in facts.hosts if "clock_offset" in h.traces.numbers
    }
    wrong = [name for name, offset in off.items() if abs(offset) >= _OFF]
    touched = [p.name for p in facts.parties if p.member.host in wrong]
    writers = {e.party for e in lines}
    apart = [e for e in lines if e.party in touched] if len(writers) <= len(touched) else []
    if not negative and not (wrong and apart):
        return
    said = listed(wrong) if wrong else "a host"
    yield rule.finding(
        said,
        f"Leases and deadlines fail by the clock of {said}.",
        [*(f"clock of {n}: {off[n]:+.1f} s" for n in wrong), *quoted(negative or apart)],
        "chronyc makestep on that host; chronyc tracking on all",
        touches=[*wrong, *touched, *writers],
        since=since(lines),
    )
