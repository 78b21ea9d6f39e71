"""PD303: a server that peers connect to listens on loopback only."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import anywhere, by_endpoint, listeners, loopback, owner
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts, HostView
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD303", "bound to loopback only", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Peers are refused at an address whose port is bound, but to 127.0.0.1.

    What it looks like: "Connection refused" at once, the server is alive, and `ss -ltnp` on its host shows
    127.0.0.1:PORT. The server was started with --host 127.0.0.1 or left it at that default.

    What else it could be: refused with nothing bound at all is a dead or misplaced server (PD304). A connect
    that times out is a firewall or a route (PD311, PD312): a refusal comes from the host itself.

    What to do: start it with --host 0.0.0.0 or the address of its NIC, with a fixed bootstrap port.
    """
    for at, events in by_endpoint(facts.events("net.refused")).items():
        if loopback(at.host):
            continue
        host = owner(facts, at)
        bound = listeners(host, at.port) if host else []
        local = bool(bound) and all(loopback(s.address) for s in bound)
        settings = _told_loopback(facts, host) if not bound else []
        if not local and not settings:
            continue
        lines = [
            f"{host.name if host else at.host}: {s.process or 'a process'} listens on {s.address}:{s.port}"
            for s in bound
        ]
        owners = [p.name for p in facts.parties if host is not None and p.member.host == host.name]
        yield rule.finding(
            str(at),
            f"{listed(writers(events))} are refused at {at}: it is bound to loopback only."
            if len(writers(events)) > 1
            else f"{listed(writers(events))} is refused at {at}: it is bound to loopback only.",
            [*lines, *settings, *quoted(events)],
            "start that server with --host 0.0.0.0 or its NIC's address, and a fixed bootstrap port",
            touches=[*owners, *writers(events)],
            since=since(events),
        )


def _told_loopback(facts: Facts, host: HostView | None) -> list[str]:
    """Servers of that host that say they serve loopback, where sockets were not shown."""
    found = []
    for party in facts.parties:
        if host is None or party.member.host != host.name or host.traces.sockets:
            continue
        told = party.traces.settings.get("host", "")
        served = [e for e in party.traces.of("net.serves") if loopback(e.values["host"])]
        if loopback(told):
            found.append(f"{party.name} was started with --host {told}")
        elif served and not any(anywhere(e.values["host"]) for e in party.traces.of("net.serves")):
            found += quoted(served[:1])
    return found
