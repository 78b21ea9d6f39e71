"""PD121: an engine says that the two sides do not fit."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_NAMED = ("PD110", "PD111", "PD112", "PD113", "PD114", "PD116", "PD117", "PD118", "PD810")


@rule("PD121", "an engine says that the pair does not fit", Severity.ERROR, ["logs"], echo_of=_NAMED)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An error in a log says in words that prefill and decode differ in something that must be equal.

    What it looks like: "… mismatch", "must be equal", "must match" or "not supported" in one line with
    prefill and decode, or with local and remote, at the handshake or at the first request.

    What else it could be: what has a rule of its own comes first: page size PD110, TP PD111, hash PD112, KV
    dtype PD117, versions PD810. This is for everything else that engines check.

    What to do: make equal on both sides what the line names, and restart both.
    """
    events = facts.events("pair.unfit")
    if not events:
        return
    lines = [
        d.told(prefill.name, decode.name)
        for prefill, decode in pairs.pairs(facts)
        for d in pairs.differences(prefill, decode)
    ]
    said = events[0].line.rpartition("Error: ")[2].strip()
    yield rule.finding(
        listed(writers(events)),
        f"{listed(writers(events))} says that prefill and decode do not fit: {said[:160]}",
        [*quoted(events), *lines],
        "make equal on both sides what the line names, then: pdctl restart --co CELL",
        touches=[e.name for e in facts.engines if e.role in ("prefill", "decode")] or writers(events),
        since=since(events),
    )
