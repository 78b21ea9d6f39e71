"""PD449: limits of one step that do not fit one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_SEQUENCES = ("max_batch_size", "max_running")
_DRAFTS = (
    "max_draft_len",
    "speculative.max_draft_len",
    "speculative_config.max_draft_len",
    "speculative.num_speculative_tokens",
    "num_nextn_predict_layers",
    "speculative.num_nextn_predict_layers",
    "speculative_num_draft_tokens",
)
_TOKENS = ("max_num_tokens", "max_num_batched_tokens")


def _number(settings: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, int] | None:
    return next(((n, int(settings[n])) for n in names if settings.get(n, "").isdigit()), None)


@rule("PD449", "a full batch exceeds its token limit", Severity.ERROR, ["settings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A full batch with its draft tokens needs more tokens in a step than the engine allows.

    What it looks like: fine until the batch is full, then an assertion on one rank and a silent deadlock of
    the others: HTTP answers 200 and no token comes.

    What else it could be: this is arithmetic over the settings, so there is nothing to confuse it with; it
    is harmless while the batch never fills.

    What to do: raise the token limit to sequences times (1 + draft tokens), or lower the sequences.
    """
    for party in facts.engines:
        settings = party.traces.settings
        batch, drafts = _number(settings, _SEQUENCES), _number(settings, _DRAFTS)
        tokens = _number(settings, _TOKENS)
        if batch is None or drafts is None or tokens is None:
            continue
        need = batch[1] * (1 + drafts[1])
        hurts = stall(party.traces) is not None or died(party)
        if need <= tokens[1] or not (hurts or party.traces.kind == "trtllm"):
            continue  # other engines schedule around it
        yield rule.finding(
            party.name,
            f"A full batch of {party.name} needs {need} tokens a step and {tokens[0]} allows {tokens[1]}.",
            [f"{batch[0]} {batch[1]} x (1 + {drafts[0]} {drafts[1]}) = {need} > {tokens[0]} {tokens[1]}"],
            f"set {tokens[0]} to {need} or more, then: pdctl deploy",
            severity=None if hurts else Severity.WARNING,
        )
