"""PD410: NVLink faults."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, HostView
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.diagnose.xids import NVLINK, of, xids


@rule("PD410", "NVLink fault", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The links between GPUs failed: collectives hang or workers die, and a restart does not help.

    What it looks like: Xid 74, 137 or 144 to 150 (of a switch: SXid) in the kernel log, on several GPUs at
    one moment, or CUDA errors that name nvlink; AllReduce and AllGather hang, also in fresh processes and in
    a test with two GPUs. It looks like a deadlock of software.

    What else it could be: a desync of ranks shows different collectives and no Xid. In a container the kernel
    log often cannot be read, NVML exposes no Xid, and a clean nvidia-smi proves nothing (PD417).

    What to do: take the node out of service, look at the fabric manager, reboot it; report repeats to the
    vendor.
    """
    for host in facts.hosts:
        found = of(xids(host.traces.events), NVLINK)
        here = [p for p in facts.parties if p.member.host == host.name]
        switch = [e for e in host.traces.events if e.sign == "gpu.sxid"]
        logged = [e for p in here for e in p.traces.of("gpu.nvlink")]
        logged += [x.event for p in here for x in of(xids(p.traces.events), NVLINK)]
        harmless = all("Non-fatal" in e.line for e in switch)
        if not found and not logged and not switch:
            continue
        devices = list(dict.fromkeys(x.device for x in found if x.device))
        numbers = list(dict.fromkeys(x.told for x in found))
        numbers += [f"SXid {n} of a switch" for n in dict.fromkeys(e.values["sxid"] for e in switch)]
        what = listed(numbers) if numbers else "an engine's error names NVLink"
        yield rule.finding(
            host.name,
            f"NVLink of {host.name} failed: {what}"
            + (f" on {len(devices)} GPUs." if len(devices) > 1 else "."),
            [*quoted([x.event for x in found]), *quoted(switch), *quoted(logged), *unseen(host)],
            f"take {host.name} out of service, look at nvidia-fabricmanager, reboot it",
            touches=[host.name, *(p.name for p in here)],
            since=since([*(x.event for x in found), *logged, *switch]),
            severity=Severity.WARNING if harmless and not found and not logged else Severity.ERROR,
        )


def unseen(host: HostView) -> list[str]:
    """What cannot be known of a host whose kernel log cannot be read."""
    if any(e.sign == "kernel.not_readable" for e in host.traces.events):
        return [f"{host.name}: the kernel log is not observable from here; a clean nvidia-smi proves nothing"]
    if not any(e.sign == "gpu.xid" for e in host.traces.events):
        return [f"{host.name}: Xids are not observable in what was collected; read the host's kernel log"]
    return []
