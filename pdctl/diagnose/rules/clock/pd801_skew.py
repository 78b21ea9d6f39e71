"""PD801: clocks that differ."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.clock import BROKEN, OURS, SKEW, at_least, spread
from pdctl.facts.missing import known


@rule("PD801", "clocks differ", Severity.WARNING, ["host.clock"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The clock of a host is further from the others' than the measurement could be wrong.

    What it looks like: ages and "since" that make no sense, lines of two logs in the wrong order. Nothing
    that engines do between hosts depends on it: their deadlines count on one clock each.

    What else it could be: a slow round trip is no skew; the error of the measurement is taken off first.
    This machine's clock takes part: when it is the odd one out, it is named.

    What to do: `timedatectl set-ntp true` (or chrony) on the host that is named, and see with
    `timedatectl` that it is synchronised.
    """
    clocks = {h.name: h.clock for h in facts.hosts if known(h.clock)}
    middle, apart = spread(clocks)
    for host, clock in apart.items():
        if at_least(clock) <= SKEW:
            continue
        touched = [m.name for m in facts.members() if host in (m.host, OURS)]
        yield rule.finding(
            host,
            f"The clock of {host} is {clock.offset:+.1f} s from {middle}.",
            [f"{clock.offset:+.3f} s, known to {clock.error:.3f} s"],
            f"timedatectl set-ntp true   # on {host}",
            touches=touched,
            severity=Severity.ERROR if at_least(clock) > BROKEN else None,
        )
