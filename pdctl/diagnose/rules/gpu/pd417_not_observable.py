"""PD417: the kernel log cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD417", "GPU faults are not observable", Severity.INFO, [], role="effect")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Where the engines run, nobody may read the kernel log, so that no Xid can be seen.

    What it looks like: "dmesg: read kernel buffer failed: Operation not permitted", as in most containers.

    What else it could be: this is no fault. But hardware is not cleared by it: NVML exposes no Xid, and a
    clean nvidia-smi proves little.

    What to do: read the kernel log on the host itself: journalctl -k | grep -i xid.
    """
    for host in facts.hosts:
        events = [e for e in host.traces.events if e.sign == "kernel.not_readable"]
        if events:
            yield rule.finding(
                host.name,
                f"the kernel log of {host.name} is not observable from where this was collected: GPU faults "
                "cannot be excluded.",
                quoted(events[:1]),
                "on the host itself: journalctl -k | grep -i xid",
                touches=[],
            )
