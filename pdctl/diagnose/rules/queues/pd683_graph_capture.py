"""PD683: answers are wrong with CUDA graphs and right without."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.quality import parties, poor, symptoms
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.trials import cured, told

_GRAPH = re.compile(r"graph|eager", re.I)


@rule("PD683", "wrong with CUDA graphs", Severity.ERROR, ["engine.reach"], echo_of=["PD680"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A captured graph keeps values that should change: indices, pointers, lengths.

    What it looks like: repeated tokens or several points of accuracy less with any graph mode, right in
    eager mode, all else equal. With speculative decoding the acceptance length may look the same.

    What else it could be: wrong in eager mode too is transfer, kernels or a mismatch (PD684, PD687). Right
    when both roles are one engine points at KV that came from a prefill and a graph that does not see it.

    What to do: run decode eager (or with the graph mode that is right) meanwhile, and upgrade. Keep the A/B
    on a fixed evaluation as a test of every upgrade.
    """
    changes = cured(facts, "graph")
    measured = [e for e in poor(facts) if _GRAPH.search(e.line)]
    wrong = symptoms(facts)
    if not changes and not measured:
        return
    if not changes and not wrong and len(measured) < 2:
        return
    names = parties(facts, [*wrong, *measured])
    yield rule.finding(
        names[0] if names else "decode",
        "Answers are wrong with CUDA graphs and right without them.",
        [*map(told, changes), *quoted(measured, 4), *quoted(wrong, 2)],
        "run decode without CUDA graphs until it is upgraded",
        touches=names,
        since=since([*wrong, *measured]),
    )
