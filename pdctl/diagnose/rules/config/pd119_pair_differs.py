"""PD119: a pair whose transfers fail was started differently."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_FAILED = ("pair.handshake", "room.kv_failed", "sglang.room_failed", "vllm.transfer_failed", "answer.differs")
_NAMED = ("PD110", "PD111", "PD112", "PD113", "PD116", "PD117", "PD118", "PD810")
_KINDS = ("geometry", "sharding", "speculative", "connector", "transport")


@rule("PD119", "a pair was started differently", Severity.WARNING, [], echo_of=_NAMED, role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Effective settings of a prefill and its decode differ in what KV or its transport depends on.

    What it looks like: nothing by itself. Where transfers of that pair fail or answers are wrong it is a
    suspect; where they work it is worth knowing.

    What else it could be: many pairs differ on purpose, in TP for example. A pair that worked like this
    before has another fault.

    What to do: make the listed settings equal, or prove with one request that the difference is harmless.
    """
    for prefill, decode in pairs.pairs(facts):
        found = pairs.of_kind(pairs.differences(prefill, decode), *_KINDS)
        if not found:
            continue
        lines = [d.told(prefill.name, decode.name) for d in found]
        failed = [e for v in (prefill, decode) for e in v.traces.of(*_FAILED)]
        worked = prefill.traces.last_transfer_at or decode.traces.last_transfer_at
        suspect = bool(failed) and not worked
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{prefill.name} and {decode.name} differ in {pairs.named(found[:4])}"
            + ("; their transfers fail." if suspect else "."),
            [*lines, *(quoted(failed) if suspect else [])],
            "make them equal, or prove with one request that the difference is harmless",
            touches=[prefill.name, decode.name],
            since=since(failed) if suspect else None,
            severity=Severity.WARNING if suspect else Severity.INFO,
            hypotheses=_LIVE if suspect else (),
        )


_LIVE = (
    Hypothesis("the pair does not fit", "make the listed settings equal and send one request"),
    Hypothesis("the way between them is broken", "try the same two servers on one host, or another backend"),
)
