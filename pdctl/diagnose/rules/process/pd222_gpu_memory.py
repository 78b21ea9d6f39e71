"""PD222: an engine ran out of GPU memory."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died, past
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule(
    "PD222",
    "out of GPU memory",
    Severity.ERROR,
    ["logs"],
    echo_of=["PD638", "PD637", "PD216", "PD218"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine ended because an allocation on its GPU failed.

    What it looks like: "CUDA out of memory. Tried to allocate …" and an end. At a start it is weights, KV
    pool and graphs that do not fit; under load it is activations of a long prompt or a large batch beside a
    KV pool that took everything else.

    What else it could be: other processes on the GPU (the message names them; PD216, PD217). Ranks that are
    uneven are PD638. A request that failed and left the engine alive is no end.

    What to do: lower the share of memory for KV (--mem-fraction-static, --gpu-memory-utilization) or the
    tokens of one prefill step (--chunked-prefill-size, --max-num-batched-tokens).
    """
    for party in facts.parties:
        lines = [e for e in party.traces.of("memory.oom") if not past(party, e)]
        if not lines or not died(party) or not any("CUDA" in e.line or "HIP" in e.line for e in lines):
            continue
        yield rule.finding(
            party.name,
            f"{party.name} ended because it ran out of GPU memory.",
            quoted(lines),
            "lower --mem-fraction-static or --gpu-memory-utilization, or the tokens of one prefill step",
            since=since(lines),
        )
