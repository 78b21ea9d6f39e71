"""PD122: decode does not find what the prefill stored."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD122", "stored KV is not found again", Severity.WARNING, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A prefill stores KV through a cache layer, and decode looks it up and finds none.

    What it looks like: "Stored N out of N tokens" on the prefill and "hit tokens: 0" on decode for the
    same prompts; answers are right, and decode computes every prompt again. It may begin at some length.

    What else it could be: a prompt that is new to both sides has no hit on the prefill. A failed transfer
    says so (PD524).

    What to do: make equal what the key is made of (model, chunk size, dtype, hash seed), and the receiver's
    buffer larger than the longest prompt's KV.
    """
    stored = [e for p in facts.engines if p.role == "prefill" for e in p.traces.of("cache.stored")]
    looked = [e for p in facts.engines if p.role == "decode" for e in p.traces.of("cache.looked_up")]
    if not stored or not looked or any(e.values["hit"] != "0" for e in looked):
        return
    seeds = facts.events("cache.no_seed")
    names = list(dict.fromkeys(e.party for e in looked))
    yield rule.finding(
        listed(names),
        f"{listed(names)} finds nothing of the KV that prefills store, and computes prompts again.",
        quoted(looked, 2) + quoted(stored, 1) + quoted(seeds, 1),
        "compare the cache layer's settings of both sides (chunk size, buffer, hash seed, model name)",
        touches=[*names, *(e.party for e in stored)],
        since=since(looked),
        hypotheses=[
            Hypothesis(
                "the two sides make different keys (hash seed, chunk size, dtype, model)",
                "PYTHONHASHSEED and the cache's configuration on both sides: equal?",
            ),
            Hypothesis(
                "the KV of such a prompt does not fit into the receiver's buffer",
                "send a short prompt: is it found? Then make the buffer larger",
            ),
        ],
    )
