"""PD218: a living process beside the engine keeps a dead engine's GPU memory mapped."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, OtherView
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_USED = 1024.0  # MiB that are more than a driver's own


@rule("PD218", "memory mapped by a sidecar", Severity.ERROR, ["gpus"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """GPU memory is used, no process of an engine is listed on the GPU, and a sidecar or peer lives on.

    What it looks like: an engine crash-loops on its check of free memory; nvidia-smi or rocm-smi shows used
    memory and no compute process of the engine. What was opened by IPC stays taken until every process that
    opened it has closed it or ended.

    What else it could be: an orphan is listed by its pid (PD216). A card whose driver keeps memory shows it
    with no engine and no sidecar at all: reset or reboot.

    What to do: restart the sidecar (or the peer that imported the memory) and see the memory free; then
    start the engine. Stop both together from then on.
    """
    for host in facts.hosts:
        here = [p for p in facts.parties if p.member.host == host.name]
        failing = [e for p in here for e in p.traces.of("process.gpu_memory_taken")]
        alive = [p for p in here if isinstance(p, OtherView) and p.traces.ended is None]
        used = [g for g in host.traces.gpus if (g.used_mib or 0) > _USED]
        asked = any(tool.startswith(("nvidia-smi", "rocm-smi")) for tool in host.traces.tools)
        if not failing or not alive or not used or host.traces.gpu_processes or not asked:
            continue
        names = listed(p.name for p in alive)
        yield rule.finding(
            host.name,
            f"GPU memory of a dead engine on {host.name} is still mapped by {names}.",
            [
                *(f"GPU {g.index}: {g.used_mib:.0f} MiB used, no compute process listed" for g in used),
                f"{names} runs",
                *quoted(failing),
            ],
            f"restart {names}, see the memory free, then start the engine",
            touches=[host.name, *(p.name for p in here)],
            since=since(failing),
        )
