"""PD324: of several NICs one carries everything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts, HostView
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_DEVICE = re.compile(r"\b(?P<device>mlx5_\w+?|rdmap\w+|bnxt_re\d+|irdma\d+|efa_\d+):\d")
_MANY = 8  # lines that say which NIC was used
_SHARE = 0.95


@rule("PD324", "one NIC carries everything", Severity.WARNING, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A host has several RDMA NICs and all transfers take the same one.

    What it looks like: half (or an eighth) of the bandwidth that the host should have; one NIC's counters
    grow, the others' stand still; UCX's data log shows one device for all GPUs rather than the near one.

    What else it could be: one engine that was given one NIC on purpose. A NIC whose port is down cannot be
    used (PD327). Low load needs no second NIC.

    What to do: give each rank the NIC that is near its GPU: UCX_NET_DEVICES for each rank, in vLLM
    VLLM_GPU_NIC_PCIE_MAPPING, in SGLang --disaggregation-ib-device with a device for each GPU.
    """
    for host in facts.hosts:
        devices = [r.device for r in host.traces.rdma if r.state in ("", "ACTIVE")]
        used, lines = _used(facts, host)
        total = sum(used.values())
        if not total or len({*devices, *used}) < 2:
            continue
        first, most = used.most_common(1)[0]
        if most < _SHARE * total or _pinned(facts, host.name, first):
            continue
        idle = [d for d in dict.fromkeys([*devices, *used]) if d != first]
        yield rule.finding(
            host.name,
            f"all transfers of {host.name} take {first}; {', '.join(idle)} stand idle.",
            lines,
            "give each rank the NIC near its GPU (UCX_NET_DEVICES for each rank)",
            touches=[host.name, *(p.name for p in facts.parties if p.member.host == host.name)],
            hypotheses=(
                Hypothesis(
                    "the library ignores which NIC is near which GPU",
                    "set UCX_NET_DEVICES for each rank to the NIC near it (nvidia-smi topo -m) and measure",
                ),
                Hypothesis("the load needs only one", "read port_xmit_data of each NIC under full load"),
            ),
        )


def _used(facts: Facts, host: HostView) -> tuple[Counter[str], list[str]]:
    """Device -> bytes or lines, and where that is from."""
    numbers = {
        name.partition(".")[0]: value
        for name, value in host.traces.numbers.items()
        if name.endswith((".tx_bytes", ".xmit_bytes", ".port_xmit_data"))
    }
    if numbers:
        counted: Counter[str] = Counter({d: int(v) for d, v in numbers.items()})
        return counted, [f"{host.name} {d}: {v:g} bytes sent" for d, v in numbers.items()]
    names = [p.name for p in facts.parties if p.member.host == host.name]
    events = [e for e in facts.events("ucx.lane_used") if e.party in names]
    found = [m["device"] for e in events if (m := _DEVICE.search(e.line))]
    return (Counter(found), quoted(events)) if len(found) >= _MANY else (Counter(), [])


def _pinned(facts: Facts, host: str, device: str) -> bool:
    """Every engine of the host names this one device."""
    told = [{**p.traces.settings, **p.traces.environ} for p in facts.parties if p.member.host == host]
    named = [t.get("UCX_NET_DEVICES") or t.get("disaggregation_ib_device") or "" for t in told]
    return bool(named) and all(n.partition(":")[0] == device for n in named)
