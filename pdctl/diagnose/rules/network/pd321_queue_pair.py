"""PD321: queue pairs do not connect."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import crossed_rails
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_LINK_LOCAL = re.compile(r"^fe:?80")


@rule("PD321", "RDMA queue pairs do not connect", Severity.ERROR, [], echo_of=["PD319", "PD322", "PD327"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A queue pair cannot go to "ready to receive": the address of the peer's port does not lead to it.

    What it looks like: "Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num" for every peer.
    Errno 110 (timed out) is addressing: GIDs of the two hosts are in networks that do not meet, or of
    different kinds. Errno 22 (invalid argument) is an attribute: MTU or GID index.

    What else it could be: different MTUs that can be read are PD319; no usable GID at all is PD322; errors
    after a connection was made are PD320.

    What to do: choose on both sides the GID of the network they share (MC_GID_INDEX, NCCL_IB_GID_INDEX,
    UCX_IB_GID_INDEX; show_gids lists them), then check VLANs and routes with ib_write_bw -d DEV -x INDEX.
    """
    events = facts.events("verbs.rtr_failed")
    if not events:
        return
    gids = facts.events("verbs.gid")
    crossed = crossed_rails([*events, *facts.events("verbs.packet")])
    chosen = [
        f"{e.party}: {e.values['device']} uses GID {e.values['index']}, {e.values['gid']}" for e in gids
    ]
    shown = [f"{h.name} {r.device}: GID {g}" for h in facts.hosts for r in h.traces.rdma for g in r.gids]
    number = next((e.values["errno"] for e in events if "errno" in e.values), "")
    why = next((e.values["why"] for e in events if "why" in e.values), "")
    attribute = number == "22" or why.startswith("Invalid")
    live = _live(attribute, gids, crossed)
    yield rule.finding(
        listed(writers(events)),
        f"RDMA queue pairs of {listed(writers(events))} do not connect"
        + (f" ({why or 'errno'}{f' [{number}]' if number else ''})" if why or number else "")
        + ": "
        + (
            "an attribute is refused." if attribute else "the address of the peer's port does not lead to it."
        ),
        [*dict.fromkeys(chosen[:4]), *shown[:4], *quoted(events)],
        live[0].test,
        touches=partners(facts, writers(events)),
        since=since(events),
        hypotheses=live,
    )


def _live(attribute: bool, gids: list[Event], crossed: str) -> tuple[Hypothesis, ...]:
    local = [e for e in gids if _LINK_LOCAL.match(e.values["gid"])]
    gid = Hypothesis(
        "the chosen GIDs are of networks that do not meet"
        + (f" (GID index {local[0].values['index']} is link-local)" if local else ""),
        "show_gids on both hosts; ib_write_bw -d DEV -x INDEX between them, then MC_GID_INDEX",
    )
    route = Hypothesis("a VLAN or route between the NICs is missing", "ping -I IFACE PEER over that very NIC")
    mtu = Hypothesis("the MTU differs", "ibv_devinfo | grep active_mtu on both hosts")
    rails = Hypothesis(
        f"NICs of different rails do not reach each other ({crossed})",
        "give both sides one NIC (--disaggregation-ib-device) and send one request",
    )
    if crossed:
        return (rails, gid)
    return (mtu, gid) if attribute else (gid, route)
