"""PD447: NCCL buffers of CUDA graphs went stale when memory was released and resumed."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_TRIO = ("NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "SGLANG_MEMORY_SAVER_CUDA_GRAPH")
_OFF = ("", "0", "false", "no")


def _armed(party: Party) -> bool:
    return all(party.traces.environ.get(name, "").lower() not in _OFF for name in _TRIO)


@rule("PD447", "graph buffers stale after a resume", Severity.ERROR, ["environ"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Buffers that NCCL registered for CUDA graphs point to memory that was released and mapped anew.

    What it looks like: a hang of all ranks in the first collective after release_memory_occupation and
    resume_memory_occupation (weight updates between steps of training), with NVLS, cuMem and graphs kept
    over the pause all on.

    What else it could be: without one of the three variables this cannot happen. A hang before any release
    has another cause.

    What to do: set NCCL_NVLS_ENABLE=0 or SGLANG_MEMORY_SAVER_CUDA_GRAPH=0, or turn graph buffer
    registration off (NCCL_GRAPH_REGISTER=0), and restart.
    """
    for party in facts.parties:
        lines = list(party.traces.of("collective.memory_paused", "collective.memory_resumed"))
        if not _armed(party):
            continue
        settings = [f"{name}={party.traces.environ[name]}" for name in _TRIO]
        hangs = (
            stall(party.traces) or any(party.traces.of("watchdog.fired", "collective.timeout")) or died(party)
        )
        if not lines or not hangs:
            continue
        resumed = any(party.traces.of("collective.memory_resumed"))
        yield rule.finding(
            party.name,
            f"{party.name} hangs after its memory was released and resumed: NCCL's graph buffers are stale.",
            [*settings, *quoted(lines)],
            "NCCL_GRAPH_REGISTER=0 (or NCCL_NVLS_ENABLE=0) in its profile, then: pdctl deploy",
            since=since(lines),
            hypotheses=[]
            if resumed
            else [
                Hypothesis("stale graph buffers", "NCCL_NVLS_ENABLE=0 and the same cycle again"),
                Hypothesis("another hang of a collective", "ncclras twice, 10 s apart"),
            ],
        )
