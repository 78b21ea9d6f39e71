"""PD333: an RDMA device that a process sees and may not use."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import recovered
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD333", "RDMA device cannot be used here", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """UCX opens every RDMA device that it finds; one of them is not this container's or has no way out.

    What it looks like: "ibv_modify_qp … failed to modify to RTR: No such device", "uct_iface_open(…/mlx5_N)
    failed", "ibv_query_gid … failed" or a queue pair that cannot be made on one device, before any peer is
    spoken to; then NIXL_ERR_BACKEND. All devices of the host are visible, and the container was given one; or
    one is a management function or the NIC of the machine's ordinary network.

    What else it could be: the same at a handshake with a peer is the path between them (PD321). A device
    that was asked for and is not there is PD313.

    What to do: name the devices that belong to it: UCX_NET_DEVICES=mlx5_N:1 (NCCL_IB_HCA for NCCL).
    """
    for party in facts.parties:
        lines = list(party.traces.of("ucx.device_refused"))
        if not lines or recovered(facts, lines):
            continue  # it took another device
        devices = list(dict.fromkeys(e.values["device"] for e in lines if e.values.get("device")))
        asked = party.traces.environ.get("UCX_NET_DEVICES", "")
        yield rule.finding(
            party.name,
            f"{party.name} sees {listed(devices) if devices else 'an RDMA device'} and cannot use it.",
            [*quoted(lines), *([f"UCX_NET_DEVICES={asked}"] if asked else [])],
            "UCX_NET_DEVICES=DEVICE:1 with the device that it was given (ibv_devinfo inside it)",
            since=since(lines),
        )
