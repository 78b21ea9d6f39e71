"""PD311: a host's firewall drops what peers send."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import by_endpoint, ports
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD311", "a firewall drops peers' packets", Severity.ERROR, ["kernel"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The kernel log of a host shows inbound packets that its firewall dropped.

    What it looks like: peers' connects time out, the host's own connects outward work, so that it looks
    ready; its kernel log has UFW BLOCK (or DROP, REJECT) lines with the sender and the port.

    What else it could be: a timeout without such lines may be a firewall that does not log, or a route
    (PD312). Drops of ports that nothing here uses are the internet's noise and are left out unless a peer
    sent them.

    What to do: open the ports that are named (ufw allow from NET to any port PORT), or turn the firewall off.
    """
    timed_out = by_endpoint(facts.events("net.timed_out"))
    wanted = {at.port for at in timed_out}
    peers = {h.address for h in facts.hosts if h.address}
    for host in facts.hosts:
        events = [e for e in host.traces.events if e.sign == "kernel.blocked"]
        own = {port for p in facts.parties if p.member.host == host.name for port in ports(p)}
        mine = [e for e in events if int(e.values["port"]) in wanted | own or e.values["src"] in peers]
        denies = [e for e in host.traces.events if e.sign == "firewall.denies"]
        if not mine and not (denies and timed_out):
            continue
        shut = sorted({e.values["port"] for e in mine}, key=int) or [str(p) for p in sorted(wanted)]
        failed = [e for at, found in timed_out.items() for e in found if str(at.port) in shut]
        parties = [p.name for p in facts.parties if p.member.host == host.name]
        yield rule.finding(
            host.name,
            f"the firewall of {host.name} drops what peers send to port {listed(shut)}.",
            [*quoted([*mine, *denies]), *quoted(failed)],
            f"open port {listed(shut)} on {host.name} for the fleet's hosts",
            touches=[host.name, *parties, *writers(failed)],
            since=since(mine),
        )
