"""PD319: the MTU of two hosts' RDMA ports differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_BROKEN = ("verbs.completion", "verbs.reconnect", "verbs.rtr_failed", "mooncake.batch_timeout")


@rule("PD319", "RDMA MTU differs between hosts", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Two hosts' RDMA ports have different active MTUs, and the transfer engine does not negotiate.

    What it looks like: all RDMA between the two hosts fails with "remote invalid request", "local length" or
    "local access violation" errors and connections are made anew without end. perftest passes, because it
    negotiates, so it cannot exclude this.

    What else it could be: the same errors with equal MTUs are PD320. Where nothing fails the difference is
    only worth knowing: UCX negotiates the path MTU.

    What to do: give all ports the same MTU, or set MC_MTU to the smallest on every host, and restart.
    """
    by: dict[int, list[str]] = defaultdict(list)
    for host in facts.hosts:
        for port in host.traces.rdma:
            if port.mtu and port.state in ("", "ACTIVE") and _used(facts, host.name, port.device):
                by[port.mtu].append(f"{host.name} {port.device}")
    owners = {mtu: {n.partition(" ")[0] for n in names} for mtu, names in by.items()}
    if len(by) < 2 or not any(owners[a] != owners[b] for a in by for b in by):
        return
    broken = facts.events(*_BROKEN)
    smallest = min(by)
    told = listed(f"{listed(by[mtu])} {mtu}" for mtu in sorted(by, reverse=True))
    hosts = list(dict.fromkeys(n.partition(" ")[0] for names in by.values() for n in names))
    yield rule.finding(
        listed(hosts),
        f"RDMA ports have different MTUs: {told}" + ("; RDMA between them fails." if broken else "."),
        [*(f"{name}: active_mtu {mtu}" for mtu, names in by.items() for name in names), *quoted(broken)],
        f"set the same MTU on every port, or MC_MTU={smallest} on every host, and restart",
        touches=[*hosts, *(p.name for p in facts.parties)],
        since=since(broken),
        severity=Severity.ERROR if broken else Severity.INFO,
    )


def _used(facts: Facts, host: str, device: str) -> bool:
    """Named by an engine of the host; all count where none names any."""
    named = set()
    for party in facts.parties:
        if party.member.host == host:
            told = {**party.traces.settings, **party.traces.environ}
            for name in ("disaggregation_ib_device", "UCX_NET_DEVICES", "MOONCAKE_DEVICE", "NCCL_IB_HCA"):
                named |= {d.partition(":")[0] for d in told.get(name, "").split(",") if d}
    named = {n for n in named if not n.startswith(("lo", "eth", "en"))}
    return not named or device in named
