"""PD314: KV travels over TCP because UCX has no RDMA."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event, Traces
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_RDMA = ("rc_", "dc_", "ud_", "srd", "gga")
_SLOW = 100.0  # ms to set up one transfer; RDMA takes less than one


@rule("PD314", "UCX has no RDMA", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """UCX was built or installed without its RDMA transports and falls back to TCP silently.

    What it looks like: transfers work and are slow, above all their set-up (hundreds of ms); `ucx_info -d`
    lists tcp, shared memory and self, and no rc, dc or ud; counters of the RDMA NIC stand still while those
    of the Ethernet one grow.

    What else it could be: a host without RDMA hardware shows the same and is right. UCX without CUDA says
    that memory is detected as host (PD316). A missing plugin fails at once (PD317).

    What to do: install UCX with verbs and mlx5 (libuct_ib), look with `ucx_info -d`, and restart the engine.
    """
    for party in facts.parties:
        host = facts.host(party.member.host)
        listed = [e for e in host.traces.events if e.sign == "ucx.listed"] if host else []
        slow = [e for e in party.traces.of("nixl.slow_init") if float(e.values["ms"]) > _SLOW]
        lanes = list(party.traces.of("ucx.lanes"))
        over_tcp = [e for e in lanes if "tcp/" in e.values["lanes"] and not _rdma(e.values["lanes"])]
        none = bool(listed) and not any(_rdma(e.values["transport"]) for e in listed)
        has = host is not None and bool(host.traces.rdma)
        wanted = has or any(n.startswith("mlx5") for n in _devices(party.traces))
        if not _tcp_only(slow, none, over_tcp, wanted) or any(_rdma(e.values["lanes"]) for e in lanes):
            continue
        yield rule.finding(
            party.name,
            f"{party.name} moves KV over TCP: its UCX has no RDMA transport"
            + (f"; setting up one transfer took {slow[0].values['ms']} ms." if slow else "."),
            [*_told(party, listed), *quoted([*slow, *over_tcp])],
            "install UCX with verbs and mlx5, check ucx_info -d, restart the engine",
            touches=[party.name],
            since=since(slow or over_tcp),
        )


def _tcp_only(slow: list[Event], none: bool, over_tcp: list[Event], wanted: bool) -> bool:
    return (none and (bool(slow) or wanted)) or (bool(over_tcp) and wanted)


def _rdma(text: str) -> bool:
    return any(word in text for word in _RDMA)


def _devices(traces: Traces) -> list[str]:
    return traces.environ.get("UCX_NET_DEVICES", "").split(",")


def _told(party: Party, listed: list[Event]) -> list[str]:
    names = dict.fromkeys(e.values["transport"] for e in listed)
    return [f"ucx_info -d on {party.member.host} lists {', '.join(names)}"] if names else []
