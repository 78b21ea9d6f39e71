"""PD687: answers are wrong and everything else is well."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.quality import parties, poor, symptoms
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.trials import told


def _tests(facts: Facts) -> list[Hypothesis]:
    tried = " ".join(f"{c.name} {c.value}".lower() for c in facts.changes)
    tests = [
        Hypothesis(
            "KV arrives wrong", "a golden prompt through the pair and through one engine alone: same tokens?"
        ),
        Hypothesis("a captured graph is stale", "the same prompt with CUDA graphs off"),
        Hypothesis("two sides do not fit", "compare kv dtype, page size, TP, model revision of both sides"),
    ]
    return [t for t in tests if "graph" not in tried or "graph" not in t.text]


@rule("PD687", "wrong answers", Severity.ERROR, ["engine.reach"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Somebody compared answers and they are wrong, while no log and no metric complains.

    What it looks like: 200s, full KV hits, no errors; a golden prompt diverges, sometimes from the first
    token.

    What else it could be: sampling with a temperature differs by nature; compare greedy answers. The cause
    has its own rule once it is narrowed down: PD681 to PD686.

    What to do: keep a deterministic golden prompt, ask it of the pair and of one engine alone, and change
    one thing at a time: graphs, transfer backend, parallel sizes, prefix cache.
    """
    wrong = [*symptoms(facts), *poor(facts)]
    if not wrong:
        return
    names = parties(facts, wrong)
    yield rule.finding(
        names[0] if names else "engines",
        "Answers are wrong and nothing else complains.",
        [*quoted(wrong, 4), *map(told, facts.changes)],
        "compare greedy answers of the pair and of one engine, one change at a time",
        touches=names,
        since=since(wrong),
        hypotheses=_tests(facts),
    )
