"""PD113: speculative decoding is set on one side only."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_BROKEN = ("gpu.illegal_access", "pair.handshake", "room.kv_failed", "vllm.transfer_failed", "answer.differs")


@rule("PD113", "speculation differs between prefill and decode", Severity.ERROR, ["settings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode speculates with a draft model whose KV the prefill does not have, or the methods differ.

    What it looks like: short prompts work, long ones end decode with an illegal memory access or give wrong
    text, because the draft's KV group exists on one side only.

    What else it could be: an illegal access with the same speculation on both sides is a kernel's; one that
    does not depend on the length of the prompt is not this.

    What to do: give both sides the same speculative settings (--speculative-config, --speculative-algorithm)
    or none.
    """
    for prefill, decode in pairs.pairs(facts):
        found = pairs.of_kind(pairs.differences(prefill, decode), "speculative")
        method = [d for d in found if pairs.UNSET in (d.prefill, d.decode) or "method" in d.name]
        events = [e for v in (decode, prefill) for e in v.traces.of(*_BROKEN)]
        if not method or facts.events("nixl.hash_mismatch"):
            continue
        hurt = bool(events) or _crashed(prefill.traces.ended, decode.traces.ended)
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"speculation differs: {method[0].told(prefill.name, decode.name)}; draft KV has no counterpart.",
            [*(d.told(prefill.name, decode.name) for d in found), *quoted(events)],
            "give both sides the same speculative settings, then: pdctl restart --co CELL",
            touches=[prefill.name, decode.name],
            since=since(events),
            severity=Severity.ERROR if hurt else Severity.WARNING,
        )


def _crashed(*codes: int | None) -> bool:
    return any(code not in (None, 0, 143, -15, 137, -9) for code in codes)
