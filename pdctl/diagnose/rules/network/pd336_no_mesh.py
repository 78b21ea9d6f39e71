"""PD336: ranks of one engine do not reach one another for their process group."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_REMEDY = "set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on every node, and make its name resolve to it"


@rule("PD336", "ranks cannot build their group", Severity.ERROR, ["logs"], echo_of=["PD309", "PD311"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Gloo ranks connect each to each; one of them announces an address that the others cannot use.

    What it looks like: "Gloo connectFullMesh failed", before weights are loaded, on engines that span nodes.
    A node that cannot resolve its own name says "Using the loopback address as fallback" before it; variables
    of the first node are often not passed on to the others (Ray).

    What else it could be: a rank that ended: then it says why. A firewall between nodes lets connects time
    out (PD311, PD312).

    What to do: name the interface on every node, and make the host's name resolve to its address.
    """
    for party in facts.parties:
        lines = list(party.traces.of("collective.no_mesh"))
        if not lines:
            continue
        loop = list(party.traces.of("net.loopback_fallback"))
        yield rule.finding(
            party.name,
            f"Ranks of {party.name} cannot connect to one another"
            + (": a node took its loopback address for its own." if loop else "."),
            quoted([*loop[:1], *lines]),
            _REMEDY,
            since=since([*loop, *lines]),
            hypotheses=()
            if loop
            else (
                Hypothesis(
                    "a node announces an address of another network",
                    "GLOO_SOCKET_IFNAME of every rank; getent hosts $(hostname) on each node",
                ),
                Hypothesis("a firewall stands between the nodes", "nc -zv between them on a high port"),
            ),
        )
