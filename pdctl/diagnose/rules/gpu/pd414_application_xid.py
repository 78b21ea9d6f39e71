"""PD414: an Xid that a program caused."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.diagnose.xids import APPLICATION, LOST, MEMORY, NVLINK, RECOVERY, SYSTEM, Xid, of, xids

_RECENT = 600.0  # seconds


@rule(
    "PD414",
    "Xid of a program's fault",
    Severity.WARNING,
    ["kernel"],
    echo_of=["PD410", "PD411", "PD412", "PD413"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The driver removed a program from a GPU: a wrong access or a kernel that did not end, not the hardware.

    What it looks like: Xid 13, 31, 43 or 45 with the pid of an engine, together with an illegal memory access
    in that engine's log. An Xid that has no class here is shown with its text.

    What else it could be: hardware Xids at the same time (74, 79, 94, 145 …) come first; 45 "caused by
    previous Xid" is an echo of them.

    What to do: nothing at the GPU; find the kernel that failed (CUDA_LAUNCH_BLOCKING=1 on one replay).
    """
    classed = NVLINK | LOST | SYSTEM | MEMORY | {RECOVERY}
    for host in facts.hosts:
        found = [x for x in xids(host.traces.events) if x.number not in classed]
        if not found:
            continue
        known = of(found, APPLICATION)
        here = [p.name for p in facts.parties if p.member.host == host.name]
        yield rule.finding(
            host.name,
            f"the driver of {host.name} removed a program: {listed(dict.fromkeys(x.told for x in found))}."
            if known
            else f"the driver of {host.name} reports {listed(dict.fromkeys(x.told for x in found))}.",
            quoted([x.event for x in found]),
            "find the kernel that failed: CUDA_LAUNCH_BLOCKING=1 on one replay",
            touches=[host.name, *here],
            since=since([x.event for x in found]),
            severity=_severity(facts, host.name, found),
            hypotheses=(
                Hypothesis(
                    "a kernel of the engine made a wrong access", "CUDA_LAUNCH_BLOCKING=1 on one replay"
                ),
                Hypothesis(
                    "the GPU is failing", f"dcgmi diag -r 3 on {host.name}, and the same load on another GPU"
                ),
            ),
        )


def _severity(facts: Facts, host: str, found: list[Xid]) -> Severity:
    """An old Xid of a stranger hurts nobody; one where a server of the host failed does."""
    for party in (p for p in facts.parties if p.member.host == host):
        if died(party) or party.traces.health not in ("", "ok") or any(party.traces.of("gpu.illegal_access")):
            return Severity.ERROR
    fresh = any(x.event.at is not None and facts.at - x.event.at < _RECENT for x in found)
    return Severity.WARNING if fresh else Severity.INFO
