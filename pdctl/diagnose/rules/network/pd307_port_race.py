"""PD307: ports collide at random when several engines start at once."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import endpoint
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_EPHEMERAL = 10000  # chosen ports are above, fixed ones usually below


@rule("PD307", "starts race for random ports", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine picks a free port, lets it go, and binds it later; another one takes it in between.

    What it looks like: "Address already in use" with another port number at each failed start, only when
    several engines of a host start together; alone each of them starts.

    What else it could be: the same port every time is a conflict of settings or a left-over (PD305).

    What to do: start the engines of a host one after another, or give them fixed ports.
    """
    by: dict[str, set[int]] = {}
    events = facts.events("net.in_use")
    for event in events:
        at, party = endpoint(event.line), facts.party(event.party)
        if at is not None and party is not None:
            by.setdefault(party.member.host, set()).add(at.port)
    for host, used in by.items():
        names = [p.name for p in facts.parties if p.member.host == host]
        mine = [e for e in events if e.party in names]
        if len(used) < 2 or any(port < _EPHEMERAL for port in used) or _neighbours(used):
            continue
        yield rule.finding(
            host,
            f"starts of {listed(writers(mine))} find another port in use each time "
            f"({listed(str(p) for p in sorted(used))}): they race for random ports.",
            quoted(mine),
            "start them one after another, or give them fixed ports",
            touches=writers(mine),
            since=since(mine),
        )


def _neighbours(used: set[int]) -> bool:
    """Ports of ranks are counted from one base: they are fixed, not random."""
    return max(used) - min(used) < 64
