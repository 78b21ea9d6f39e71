"""PD331: a connect finds no local address or port."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import endpoint, loopback
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.rules.network.pd308_not_my_address import CONNECT


@rule("PD331", "no local port to connect from", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A connect to a peer fails on this side: the host has no local port or address left for it.

    What it looks like: "Failed to establish a new connection: [Errno 99] Cannot assign requested address",
    often from a loop that opens a connection for each request: its closed ones fill the ports (TIME_WAIT).

    What else it could be: a bind with the same errno is an address of another host (PD308). "localhost" may
    resolve to ::1 in a container without IPv6.

    What to do: count sockets with `ss -s`; widen net.ipv4.ip_local_port_range or reuse connections.
    """
    for party in facts.parties:
        events = [e for e in party.traces.of("net.not_assignable") if CONNECT.search(e.line)]
        if not events:
            continue
        at = endpoint(events[0].line)
        local = at is not None and loopback(at.host)
        full = Hypothesis("closed connections fill the local ports", "ss -s; ss -tan state time-wait | wc -l")
        six = Hypothesis(
            "the name resolves to ::1 and there is no IPv6", "getent ahosts localhost; use 127.0.0.1"
        )
        gone = Hypothesis(
            "the address belongs to no interface or port 0 was given", "compare it with ip addr"
        )
        yield rule.finding(
            party.name,
            f"{party.name} cannot connect to {at or 'its peer'}: its host gives it no local address or port.",
            quoted(events),
            "ss -s on its host; widen net.ipv4.ip_local_port_range or reuse connections",
            since=since(events),
            hypotheses=(six, full) if local else (full, gone),
        )
