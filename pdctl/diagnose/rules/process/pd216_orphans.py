"""PD216: processes of a dead engine hold GPU memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import GpuProcess
from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts, HostView, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count, listed

_WORKER = re.compile(r"VLLM::|sglang::|EngineCore|Worker|scheduler|trtllm", re.I)
_TESTS = (
    Hypothesis(
        "they are left of the life before", "ps -o ppid=,lstart= -p PID: parent 1, older than the last end"
    ),
    Hypothesis("they are an engine that runs on purpose", "ps -o args= -p PID and who listens on its port"),
)


def _orphans(facts: Facts, host: HostView) -> list[GpuProcess]:
    """GPU processes whose parent is init while no engine of the host answers for them."""
    rows = {row.pid: row for row in host.traces.processes}
    mine = [p.member.pids for p in facts.parties if p.member.host == host.name]
    owned = frozenset().union(*mine)
    found = []
    for process in host.traces.gpu_processes:
        row = rows.get(process.pid)
        if process.pid in owned or row is None:
            continue
        roots = {r.pid for r in rows.values() if r.parent == row.pid}
        engine = any(word in row.command for word in ("api_server", "serve", "launch_server", "keeper"))
        if row.parent == 1 and not engine and not roots & owned:
            found.append(process)
    return found


@rule("PD216", "orphans hold GPU memory", Severity.ERROR, ["engine.reach"], echo_of=["PD210"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Worker processes outlived their engine: their parent is gone, and their GPU memory is still taken.

    What it looks like: nvidia-smi lists worker pids that belong to no container or unit, with parent 1; the
    next start fails its check of free GPU memory or runs out of it.

    What else it could be: memory without any pid is held by IPC handles in another process (PD218) or by
    the driver. A pid with a living parent is a tenant that runs, not an orphan.

    What to do: end the pids that are listed, see the memory free with nvidia-smi, then start. A unit that
    kills its whole control group does not leave them.
    """
    for host in facts.hosts:
        here = [p for p in facts.parties if p.member.host == host.name]
        found, sure = _orphans(facts, host), True
        if not found and not host.traces.processes:
            found, sure = _strangers(host, here), False
        if not found:
            continue
        failing = [e for p in here for e in p.traces.of("process.gpu_memory_taken")]
        pids = " ".join(dict.fromkeys(str(p.pid) for p in found))
        ended = [p.name for p in here if died(p)]
        parent = ", parent 1" if sure else ""
        yield rule.finding(
            host.name,
            f"{count(len(pids.split()), 'process', 'processes')} on {host.name} outlived an engine and "
            "hold its GPU memory.",
            [
                *(f"pid {p.pid} ({p.name}){parent}, {p.used_mib or 0:.0f} MiB on GPU {p.gpu}" for p in found),
                *([f"ended before: {listed(ended)}"] if ended else []),
                *quoted(failing),
            ],
            f"kill -9 {pids}",
            touches=[host.name, *(p.name for p in here)],
            hypotheses=[] if sure else _TESTS,
        )


def _strangers(host: HostView, here: Sequence[Party]) -> list[GpuProcess]:
    """Engine workers on the GPUs of a host on which every engine that is known of failed to start."""
    failing = [p for p in here if died(p) and any(p.traces.of("process.gpu_memory_taken"))]
    if not failing or len(failing) < len(here):
        return []
    return [p for p in host.traces.gpu_processes if _WORKER.search(p.name)]
