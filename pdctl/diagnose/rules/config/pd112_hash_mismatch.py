"""PD112: the handshake's compatibility hash differs."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD112", "the compatibility hash of a pair differs", Severity.ERROR, ["logs"], echo_of=["PD810"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Prefill and decode computed different compatibility hashes, so the handshake is refused.

    What it looks like: "compatibility hash mismatch", then failed requests, or a dead engine where the load
    failure policy is "fail" or is not honoured. The hash holds the engine's version, the connector's version
    and effective settings: dtype, layout, attention backend, cross-layer blocks, speculation.

    What else it could be: with different versions on the two sides that is the reason (PD810). With the same
    versions it is an effective setting, often one that a wrapping connector changes or drops: the evidence
    lists what differs.

    What to do: make the listed settings equal on both sides, nested connectors included. Where a difference
    is meant and safe, enforce_handshake_compat=false in kv_connector_extra_config lets it pass.
    """
    events = facts.events("nixl.hash_mismatch")
    if not events:
        return
    lines: list[str] = []
    found: list[pairs.Difference] = []
    for prefill, decode in pairs.pairs(facts):
        differ = pairs.of_kind(
            pairs.differences(prefill, decode), "geometry", "model", "speculative", "connector"
        )
        changed = pairs.versions(prefill, decode)
        found += [*changed, *differ]
        lines += [d.told(prefill.name, decode.name) for d in (*changed, *differ)]
    names = [e.name for e in facts.engines if e.role in ("prefill", "decode")] or writers(events)
    what = listed(dict.fromkeys(d.name for d in found[:4]))
    yield rule.finding(
        listed(writers(events)),
        "prefill and decode refuse each other: their compatibility hashes differ"
        + (f"; what differs is {what}." if found else ", and nothing that was shown says in what."),
        [*dict.fromkeys(lines), *quoted(events)],
        f"make {what} equal on both sides, then: pdctl restart --co CELL" if found else "compare both sides",
        touches=names,
        since=since(events),
        hypotheses=() if found else _LIVE,
    )


_LIVE = (
    Hypothesis("engine or connector versions differ", "ask both for their version (GET /version, pip list)"),
    Hypothesis(
        "an effective setting differs",
        "compare the start lines of both logs, nested kv-transfer-config included",
    ),
)
