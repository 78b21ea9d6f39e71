"""PD312: connects time out."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import Endpoint, by_endpoint, endpoint, listeners, owner, recovered
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


def _unnamed(rule: Rule, facts: Facts, found: list[Event]) -> Finding:
    """A transport that says that nobody answered, and not who."""
    names = writers(found)
    return rule.finding(
        listed(names),
        f"The transport of {listed(names)} gets no answer from its peer; the line names no address.",
        quoted(found),
        f"from the host of {names[0]}: nc -vz PEER PORT, each port that the peer's log says it listens on",
        touches=partners(facts, names),
        since=since(found),
        hypotheses=(
            Hypothesis(
                "a firewall or pod network lets the engine's own port through and not the transport's",
                "ss -tlnp on the peer: which ports does it listen on? nc -vz each of them from here",
            ),
            Hypothesis(
                "the peer announced an address of another network",
                "ip addr on the peer against the address in its log; set the host variable",
            ),
        ),
    )


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
    nameless = [e for e in events if endpoint(e.line) is None and "ransport" in e.line]
    groups: list[tuple[Endpoint | None, list[Event]]] = [*by_endpoint(events).items(), (None, nameless)]
    for at, found in groups:
        once = len(found) < 2 and not any(e.sign == "net.no_route" for e in found)
        if not found or (once and at is not None) or recovered(facts, found):
            continue
        if at is None:
            yield _unnamed(rule, facts, found)
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
