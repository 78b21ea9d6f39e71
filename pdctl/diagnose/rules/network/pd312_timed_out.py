"""PD312: connects time out."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import by_endpoint, listeners, owner, recovered
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD312", "connects time out", Severity.ERROR, ["logs"], echo_of=["PD311", "PD309"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Packets to a peer's port are swallowed: no answer, not even a refusal.

    What it looks like: connects to one address time out, or there is no route to it, while that server runs.

    What else it could be: a refusal comes at once and means that nothing is bound (PD304). A host that is
    down or frozen swallows everything, also SSH and ping.

    What to do: from the peer, `nc -vz HOST PORT` and `ping HOST`; on the host, read the firewall's rules and
    its kernel log for drops; then open the port or mend the route.
    """
    events = facts.events("net.timed_out", "net.no_route")
    for at, found in by_endpoint(events).items():
        if len(found) < 2 and not any(e.sign == "net.no_route" for e in found):
            continue
        if recovered(facts, found):
            continue
        host = owner(facts, at)
        bound = listeners(host, at.port) if host else []
        there = [p.name for p in facts.parties if host is not None and p.member.host == host.name]
        lines = [f"{host.name if host else at.host} listens on {s.address}:{s.port}" for s in bound]
        yield rule.finding(
            str(at),
            f"{listed(writers(found))} gets no answer from {at}"
            + (", where a server listens." if bound else "."),
            [*lines, *quoted(found)],
            f"from that host: nc -vz {at.host or 'HOST'} {at.port}; then open the port or mend the route",
            touches=[*there, *writers(found)],
            since=since(found),
            hypotheses=(
                Hypothesis(
                    "a firewall drops it",
                    f"nft list ruleset (or ufw status) there, and dmesg for drops of port {at.port}",
                ),
                Hypothesis(
                    "the route or the address is wrong", f"ping {at.host or 'HOST'}; ip route get {at.host}"
                ),
                Hypothesis("the host is down or its server frozen", "ssh to it; look at its process"),
            ),
        )
