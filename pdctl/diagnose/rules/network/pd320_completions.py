"""PD320: RDMA completions fail."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import crossed_rails, one_nic
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_LENGTH = ("local length", "remote invalid request", "invalid request", "local access violation")
_GONE = ("retry counter exceeded", "retry count exceeded")
# ibv_wc_status by number, as NCCL prints it; 5 is the flush behind another.
_STATUS = {
    "1": "local length",
    "4": "local protection",
    "9": "remote invalid request",
    "10": "remote access",
    "11": "remote operation",
    "12": "transport retry counter exceeded",
    "13": "RNR retry counter exceeded",
}


@rule(
    "PD320",
    "RDMA writes end in errors",
    Severity.ERROR,
    [],
    echo_of=["PD319", "PD321", "PD322", "PD323", "PD327", "PD411", "PD523"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The NIC refuses or loses RDMA operations, and connections that are made anew fail at once.

    What it looks like: "local length error", "remote invalid request", "local protection", "remote access" or
    "retry count exceeded" in an engine's or the kernel's log, and endpoints that are established again and
    again, though no peer was restarted.

    What else it could be: with different MTUs that is the cause (PD319). Retries that are exceeded mean that
    the peer is gone or the path is broken, not that the request is wrong. Protection errors name memory: a
    region that is no longer registered, as after a restart of the peer.

    What to do: compare active_mtu on all hosts and try MC_MTU=1024; with RoCE ask whether the switches are
    lossless for its traffic class; then firmware; then take the node out.
    """
    events = facts.events("verbs.completion")
    again = facts.events("verbs.reconnect")
    if not events and len(again) < 10:
        return
    events = [e for e in events if e.values.get("status") in (None, *_STATUS)]
    if not events and len(again) < 10:
        return
    what = list(dict.fromkeys(_what(e) for e in events))
    live = _live(events, what)
    yield rule.finding(
        listed(writers(events or again)),
        f"RDMA of {listed(writers(events or again))} fails: "
        + (
            listed(w if "exceeded" in w else f"{w} error" for w in what)
            if what
            else "connections are made anew without end"
        )
        + (f"; {len(again)} lines of reconnects." if again and what else "."),
        quoted([*events[:3], *again[:2]]),
        live[0].test,
        touches=[
            *partners(facts, writers(events or again)),
            *(p.name for p in facts.parties if _on(facts, p.name, events)),
        ],
        since=since([*events, *again]),
        hypotheses=live,
    )


_LOSSY = Hypothesis(
    "RoCE drops packets under load: no flow control for its traffic class, or the wrong GID",
    "ethtool -S NIC | grep -E 'out_of_seq|discard|pause' on both; UCX_IB_TRAFFIC_CLASS and UCX_IB_GID_INDEX "
    "as the fabric has them",
)


_GID = Hypothesis(
    "with RoCE: the NICs do not reach each other under the GID that was taken (TCP makes the connections)",
    "show_gids on both: start once with NCCL_IB_GID_INDEX of the RoCE v2 entry with an IPv4 address",
)
_DIRECT = Hypothesis(
    "the NIC cannot read this GPU's memory: PCIe peer-to-peer is cut (ACS, IOMMU, devices passed into a VM)",
    "nvidia-smi topo -m: is that NIC PIX to the GPU? Give it another (UCX_NET_DEVICES), or once "
    "UCX_IB_GPU_DIRECT_RDMA=no",
)


def _what(event: Event) -> str:
    return _STATUS.get(event.values.get("status", "")) or event.values.get("what", "").removesuffix(" error")


def _on(facts: Facts, name: str, events: list[Event]) -> bool:
    party = facts.party(name)
    return party is not None and party.member.host in {e.party for e in events}


def _live(events: list[Event], what: list[str]) -> tuple[Hypothesis, ...]:
    nic = one_nic(events)
    if nic:
        return (
            Hypothesis(
                f"the NIC {nic} of the host that writes them is faulty: the peers vary, it does not",
                f"ib_write_bw -d {nic} to another host; leave {nic} out of the device list: does it stop?",
            ),
            *_live([], what)[:1],
        )
    crossed = crossed_rails(events)
    if crossed:
        rails = Hypothesis(
            f"NICs of different rails do not reach each other ({crossed})",
            "give both sides one NIC (--disaggregation-ib-device) and send one request",
        )
        return (rails, *_live([], what)[:1])
    mtu = Hypothesis(
        "the path MTU differs", "ibv_devinfo | grep active_mtu on both hosts; try MC_MTU=1024 on both"
    )
    firmware = Hypothesis(
        "NIC firmware or hardware",
        "ib_write_bw between the hosts with the same device and message size; ethtool -i",
    )
    memory = Hypothesis("the peer's memory region is gone", "pdctl restart --co CELL, then one request")
    path = Hypothesis("the path or the peer's port is down", "ibv_devinfo on both hosts; ping over that NIC")
    if any(end in w for end in _GONE for w in what):
        if any(e.values.get("status") for e in events):
            return (_GID, path)
        return (*((_LOSSY,) if any(e.values.get("fabric") == "RoCE" for e in events) else ()), path, memory)
    if any(w.lower() in _LENGTH for w in what):
        return (mtu, firmware)
    if any("local protection" in w.lower() for w in what):
        return (memory, _DIRECT)
    return (memory, mtu)
