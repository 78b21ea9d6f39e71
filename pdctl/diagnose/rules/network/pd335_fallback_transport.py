"""PD335: the transfer engine fell back to a transport that does not reach GPU memory."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule


@rule("PD335", "fell back to a transport without GPU memory", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Mooncake found no RDMA device, chose TCP or NVLink instead, and that cannot read this memory.

    What it looks like: "No RDMA devices found" at the start and nothing wrong; at the first transfer
    "Session::writeBody failed. Error: Bad address" (TCP given a GPU pointer) or "Requested address … not
    found" (NVLink given memory that no fabric exports). The engine may still say that it uses rdma.

    What else it could be: a peer that died fails too, with a connection that is refused or reset. Bad
    address at registration is memory that the NIC cannot pin (PD323).

    What to do: give the container the devices (--device=/dev/infiniband, rdma/ib resources). Without RDMA
    use a backend that moves GPU memory over TCP or CUDA IPC (NIXL with UCX).
    """
    for party in facts.parties:
        lines = list(party.traces.of("mooncake.no_gpu_path"))
        if not lines:
            continue
        none = list(party.traces.of("verbs.no_nic"))
        kind = "NVLink" if "nvlink" in lines[0].line else "TCP"
        yield rule.finding(
            party.name,
            f"The transfer engine of {party.name} uses {kind}, which cannot reach its GPU memory"
            + (": it found no RDMA device." if none else "."),
            quoted([*none[:1], *lines]),
            "give the container its RDMA devices (/dev/infiniband), or use the nixl backend",
            touches=[party.name, *partners(facts, [party.name])],
            since=since(lines),
            hypotheses=()
            if none
            else (
                Hypothesis("no RDMA device was found or given", "ibv_devices inside the container"),
                Hypothesis("its build has no GPU support for it", "pip show the transfer engine's wheel"),
            ),
        )
