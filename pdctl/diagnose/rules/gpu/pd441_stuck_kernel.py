"""PD441: operation counts of all ranks are equal and stand still."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.collectives import launched
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count


@rule("PD441", "all ranks stuck at the same operation", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Every rank has launched the same number of collectives and the number does not move.

    What it looks like: GPUs near 100 % busy at low power, no memory traffic, no progress; NCCL's RAS (port
    28028) shows equal counts, twice.

    What else it could be: counts that differ are ranks out of step (PD440). Counts that move are work.

    What to do: NCCL waits like everything else here; look at what runs on the GPU. Try another attention
    backend first, then another NCCL build, one at a time.
    """
    for name, counts in launched(facts).items():
        if counts.spread or not counts.still or counts.dumps < 2:
            continue
        here = [p.name for p in facts.parties if name in (p.member.host, p.name)]
        cell = next((p.member.cell for p in facts.parties if p.name in here), "CELL")
        yield rule.finding(
            name,
            f"All ranks have launched {counts.values[0]} collectives and none more: a stuck kernel or host, "
            "not ranks out of step.",
            [f"equal in {count(counts.dumps, 'dump')}", *counts.lines],
            f"pdctl restart --co {cell}",
            touches=[name, *here],
            hypotheses=[
                Hypothesis(
                    "a compute kernel (attention, MoE) never ends",
                    "cuda-gdb -p PID -ex 'info cuda kernels' on one rank; then another attention backend",
                ),
                Hypothesis(
                    "NCCL itself is stuck", "another NCCL build, or NCCL_P2P_DISABLE=1, under the same load"
                ),
            ],
        )
