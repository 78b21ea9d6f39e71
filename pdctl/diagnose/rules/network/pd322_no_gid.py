"""PD322: no GID that the transfer engine takes."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD322", "no usable GID or RDMA device", Severity.ERROR, ["logs"], echo_of=["PD323", "PD327", "PD335"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The transfer engine finds no GID that it accepts on the NICs it was given, so no NIC is left.

    What it looks like: "No suitable GID found", the device is disabled, "No available RNIC", and the
    transport does not come up. `show_gids` has no IPv4-mapped RoCE v2 entry: older releases take no IPv6-only
    GID.

    What else it could be: a NIC that does not exist in the container (no /dev/infiniband) or whose port is
    down (PD327). A GID that is found and does not reach the peer is PD321.

    What to do: give the NIC an IPv4 address, set MC_GID_INDEX to a GID that peers share, or upgrade.
    """
    gid = facts.events("verbs.no_gid")
    nic = facts.events("verbs.no_nic")
    if not gid and not nic:
        return
    events = [*gid, *nic]
    mapped = [
        f"{h.name} {r.device}: GID {g}"
        for h in facts.hosts
        for r in h.traces.rdma
        for g in r.gids
        if "ffff:" in g or "." in g
    ]
    shown = [f"{h.name} {r.device}: GID {g}" for h in facts.hosts for r in h.traces.rdma for g in r.gids]
    certain = bool(gid)
    yield rule.finding(
        listed(writers(events)),
        f"{listed(writers(events))} has no RDMA device left: "
        + ("no GID of its NICs is accepted" if gid else "none is available")
        + (", and none is IPv4-mapped." if shown and not mapped else "."),
        [*(mapped or shown)[:4], *quoted(events)],
        "give the NIC an IPv4 address or set MC_GID_INDEX (show_gids), or upgrade the transfer engine",
        touches=partners(facts, writers(events)),
        since=since(events),
        hypotheses=()
        if certain
        else (
            Hypothesis("the container does not see the NICs", "ls /dev/infiniband; ibv_devices inside it"),
            Hypothesis("no GID is accepted", "show_gids: is there an IPv4-mapped v2 entry?"),
        ),
    )
