"""PD418: the kernel reports faults of an AMD GPU or of PCIe."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD418", "the kernel reports a GPU or PCIe fault", Severity.ERROR, ["kernel"], echo_of=["PD411"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The amdgpu driver resets a GPU or reports errors of it, or PCIe reports errors it could not correct.

    What it looks like: "ring … timeout", "GPU reset begin", uncorrectable RAS errors, or "PCIe Bus Error:
    severity=Uncorrected" in the kernel log, at the time when an engine hung or died.

    What else it could be: a ring timeout may also be a kernel of the engine that never ends: the same load on
    another GPU tells.

    What to do: drain the host, reset the GPU or reboot; if it repeats, reseat or replace it.
    """
    for host in facts.hosts:
        events = [e for e in host.traces.events if e.sign in ("gpu.amd", "gpu.pcie")]
        if events:
            here = [p.name for p in facts.parties if p.member.host == host.name]
            what = "a GPU" if any(e.sign == "gpu.amd" for e in events) else "PCIe"
            yield rule.finding(
                host.name,
                f"the kernel of {host.name} reports faults of {what}.",
                quoted(events),
                f"drain {host.name}, reset the GPU or reboot",
                touches=[host.name, *here],
                since=since(events),
            )
