"""PD685: two streams share a buffer that belongs to one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.quality import parties
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.trials import cured, told

_STREAMS = re.compile(r"stream|overlap", re.I)
_SHARED = re.compile(r"flashinfer|trtllm[-_]gen|workspace|semaphore|counter", re.I)


@rule("PD685", "buffer shared by two streams", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Kernels on two streams use one workspace, counter or staging buffer, and spoil each other's.

    What it looks like: rare illegal accesses, hangs or wrong numbers with overlap or two streams; never
    with one. Kernels that need a zeroed counter at the head of their workspace break when another owner
    dirties it.

    What else it could be: wrong with one stream too is the kernel or its input. A fault of the GPU leaves
    an Xid and does not follow the number of streams.

    What to do: one stream (no overlap) as the test and the stopgap; a separate zeroed workspace for each
    owner and stream as the cure: upgrade.
    """
    changes = cured(facts, "stream")
    wrong = facts.events("answer.differs", "gpu.illegal_access")
    streams = [e for e in wrong if _STREAMS.search(e.line)]
    access = facts.events("gpu.illegal_access")
    stacks = [f for p in facts.engines for s in p.traces.stacks for f in s.frames if _SHARED.search(f)]
    shared = [e for e in facts.events("process.raised", "gpu.illegal_access") if _SHARED.search(e.line)]
    if not (changes and wrong) and not len(streams) >= 2 and not (access and (shared or stacks)):
        return
    sure = bool(changes) or len(streams) >= 2
    names = parties(facts, wrong)
    yield rule.finding(
        names[0] if names else "engines",
        "Two streams share a buffer of one kernel: wrong with overlap, right with one stream."
        if sure
        else "A kernel touched memory that is not its own; its workspace may be shared.",
        [*map(told, changes), *quoted(streams or wrong, 4)],
        "run without overlap (one stream) until it is upgraded",
        touches=names,
        since=since(wrong),
        hypotheses=[]
        if sure
        else [
            Hypothesis("a workspace is shared by streams", "the same load with one stream (no overlap)"),
            Hypothesis(
                "an index is out of bounds", "compute-sanitizer --tool memcheck on the request that fails"
            ),
        ],
    )
