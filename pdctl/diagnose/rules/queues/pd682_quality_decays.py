"""PD682: answers get worse the longer it runs."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.quality import decays, parties
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule


@rule("PD682", "quality falls with uptime", Severity.ERROR, ["engine.reach"], echo_of=["PD684"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Accuracy is right after a start and falls from measurement to measurement.

    What it looks like: the first dozens of requests match a single engine, later ones less and less; a
    restart makes it good again.

    What else it could be: constant badness from the first request is a mismatch of two sides (dtype,
    layout, model), not a state that rots. A rate that follows aborts is PD681.

    What to do: keep a golden prompt with its answer, ask it every few minutes, restart the pair when it
    differs, and narrow it down with one change at a time.
    """
    lines = decays(facts)
    if not lines:
        return
    names = parties(facts, lines)
    yield rule.finding(
        names[0] if names else "engines",
        "Accuracy falls with the number of requests served: state rots in one of the sides.",
        quoted(lines, 6),
        f"pdctl restart --co {facts.engines[0].member.cell if facts.engines else 'CELL'}",
        touches=names,
        since=since(lines),
        hypotheses=[
            Hypothesis(
                "KV arrives wrong once pages are reused", "another transfer backend, the same requests"
            ),
            Hypothesis(
                "one side's cache goes bad", "restart decode alone, then prefill alone: which restores it?"
            ),
            Hypothesis("unequal parallel sizes or GPUs re-slice KV wrongly", "the same with equal TP and PP"),
        ],
    )
