"""PD327: an RDMA port is down."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_BROKEN = (
    "verbs.",
    "mooncake.",
    "nixl.backend_error",
    "nixl.remote_disconnect",
    "room.kv_failed",
    "sglang.room_failed",
    "vllm.transfer_failed",
    "ucx.endpoint",
    "net.timed_out",
    "net.no_route",
)
_DEVICES = ("disaggregation_ib_device", "UCX_NET_DEVICES", "MOONCAKE_DEVICE", "NCCL_IB_HCA")


@rule("PD327", "an RDMA port is down", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A NIC that an engine was given, or one of a host whose transfers fail, has no active port.

    What it looks like: ibv_devinfo shows PORT_DOWN or PORT_INIT; transfers over it fail or never start.

    What else it could be: unused ports of a host are down rightly; where no engine names the NIC and nothing
    fails, that is only worth knowing.

    What to do: look at the cable and the switch port (ip link, ibstat, ethtool), or give the engines another
    NIC.
    """
    for host in facts.hosts:
        here = [p for p in facts.parties if p.member.host == host.name]
        down = [r for r in host.traces.rdma if r.state and r.state != "ACTIVE"]
        named = [r for r in down if any(r.device in _given(p) for p in here)]
        failed = [e for p in here for e in p.traces.of(*_BROKEN)]
        broken = bool(failed)
        links = [e for e in host.traces.events if e.sign == "kernel.link_down"]
        if links and broken and not named:
            yield rule.finding(
                host.name,
                f"a network link of {host.name} went down while transfers failed.",
                quoted([*links, *failed]),
                "look at the cable and the switch port (ethtool, ibstat)",
                touches=[host.name, *(p.name for p in here)],
                since=since(links),
            )
            continue
        for port in named or (down if broken and len(down) == len(host.traces.rdma) else []):
            users = [p.name for p in here if port.device in _given(p)] or [p.name for p in here]
            yield rule.finding(
                host.name,
                f"the RDMA port {port.device} of {host.name} is {port.state.lower()}, not active.",
                [
                    f"{host.name} {port.device}: state {port.state}",
                    *(f"{n} was given {port.device}" for n in users),
                ],
                f"look at its cable and switch port, or give the engines another NIC than {port.device}",
                touches=[host.name, *users],
            )


def _given(party: Party) -> set[str]:
    told = {**party.traces.settings, **party.traces.environ}
    return {d.strip().partition(":")[0] for n in _DEVICES for d in told.get(n, "").split(",") if d}
