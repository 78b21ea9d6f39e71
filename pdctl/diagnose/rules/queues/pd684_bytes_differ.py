"""PD684: KV at its destination is not the KV that was sent."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.quality import parties
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule


@rule("PD684", "KV differs at its destination", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Hashes or checksums of the same KV differ between its source and its destination.

    What it looks like: the source's hash is the same before and after the write, the destination's is
    another; only with several transfers at once.

    What else it could be: a source that changes under the write has been freed too early (PD681). Equal
    hashes and wrong answers are kernels, graphs or a mismatch.

    What to do: one transfer at a time, or another backend, until it is mended; never serve what failed its
    check.
    """
    lines = facts.events("answer.bytes_differ")
    if not lines:
        return
    names = parties(facts, lines)
    yield rule.finding(
        names[0] if names else "decode",
        "KV at its destination is not what was sent.",
        quoted(lines, 5),
        "serialise transfers or change the transfer backend",
        touches=names,
        since=since(lines),
        hypotheses=[]
        if any("concurren" in e.line or "after" in e.line or "src" in e.line for e in lines)
        else [
            Hypothesis("the transfer writes wrong bytes", "hash source and destination of each descriptor"),
            Hypothesis("the source was freed under the write", "hash the source before and after"),
        ],
    )
