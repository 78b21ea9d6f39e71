"""PD308: told to bind an address of another host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.endpoints import addresses, endpoint
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

CONNECT = re.compile(
    r"(?i)new connection|connect(?:ing)? to|connect\(|connect: |startTransfer|Max retries|urlopen"
)  # PD331
_HOSTS = ("host", "VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_HOST_IP", "SGLANG_HOST_IP", "HOST_IP", "MASTER_ADDR")


@rule("PD308", "bound to an address that is not the host's", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process tries to listen on an address that no interface of its host has.

    What it looks like: "Cannot assign requested address" (EADDRNOTAVAIL) on the second and later hosts, with
    the address of the first: a host variable was computed once and copied to every node.

    What else it could be: "in use" is another process (PD305). A connect, not a bind, says the same when
    the host has run out of local ports (PD331).

    What to do: set the host variable on each node from that node's own address, or bind 0.0.0.0.
    """
    for party in facts.parties:
        events = [e for e in party.traces.of("net.not_assignable") if not CONNECT.search(e.line)]
        if not events:
            continue
        at = endpoint(events[0].line)
        host = facts.host(party.member.host)
        mine = addresses(host) if host else set()
        told = {**party.traces.settings, **party.traces.environ}
        named = [f"{n}={told[n]}" for n in _HOSTS if at is not None and told.get(n) == at.host]
        other = next((h.name for h in facts.hosts if at and h is not host and at.host in addresses(h)), "")
        lines = [f"{host.name} has {', '.join(sorted(mine))}"] if host and mine else []
        variable = named[0].partition("=")[0] if named else "the host variable"
        yield rule.finding(
            party.name,
            f"{party.name} tries to bind {at or 'an address'}, which its host does not have"
            + (f"; it is {other}'s." if other else "."),
            [*named, *lines, *quoted(events)],
            f"set {variable} on each node to its own address",
            since=since(events),
        )
