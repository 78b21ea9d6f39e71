"""PD686: a prompt that is too long is aborted on prefill and decoded all the same."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD686", "over-long prompt decoded", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Prefill refuses a prompt that is longer than it may be, and decode is not told and answers garbage.

    What it looks like: "longer than" or "exceeds the maximum" on prefill, a usage of prompt_tokens 1 for a
    long input, a 200 with nonsense.

    What else it could be: a refusal that reaches the client as a 4xx is right. Garbage on prompts of usual
    length is another thing (PD687).

    What to do: refuse such prompts before they reach a pair (the router's or gateway's own limit, some
    tokens below the engine's), and upgrade.
    """
    long, short = facts.events("answer.too_long"), facts.events("answer.short_prompt")
    wrong = facts.events("answer.differs")
    if not long or not (short or wrong):
        return
    values = next((e.values for e in long if "tokens" in e.values), {})
    numbers = f" ({values['tokens']} tokens, limit {values['limit']})" if values else ""
    names = writers([*long, *short])
    yield rule.finding(
        names[0],
        f"A prompt that is too long{numbers} was refused by prefill and decoded all the same.",
        quoted([*long, *short, *wrong], 5),
        "refuse such prompts at the router; upgrade",
        touches=names,
        since=since(long),
    )
