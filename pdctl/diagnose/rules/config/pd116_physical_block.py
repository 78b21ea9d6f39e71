"""PD116: the physical blocks of a pair differ."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD116", "physical KV blocks differ", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Blocks of the two sides have different sizes in memory although the configured block size is the same.

    What it looks like: transfers fail at the handshake with a line about the physical block, the block length
    or the bytes of a layer. Hybrid models (attention beside state layers) are cut differently for each TP or
    DP size, so that equal --block-size is no equal block.

    What else it could be: different --page-size is PD110. A build that refuses unequal TP altogether is
    PD111.

    What to do: shard both sides the same way (equal TP, DP and attention backend), or take a build that
    compares physical blocks for each layer group.
    """
    events = facts.events("pair.physical")
    if not events:
        return
    lines = [
        d.told(prefill.name, decode.name)
        for prefill, decode in pairs.pairs(facts)
        for d in pairs.of_kind(pairs.differences(prefill, decode), "sharding", "geometry")
    ]
    yield rule.finding(
        listed(writers(events)),
        "the physical KV blocks of prefill and decode differ although their block sizes are set the same.",
        [*lines, *quoted(events)],
        "shard both sides the same way, then: pdctl restart --co CELL",
        touches=[e.name for e in facts.engines if e.role in ("prefill", "decode")] or writers(events),
        since=since(events),
    )
