"""PD529: the two sides take different data-parallel ranks for one request."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_FORCE = "SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK"


@rule("PD529", "data-parallel ranks disagree", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A request is computed on one data-parallel rank of the prefill and fetched from another.

    What it looks like: "dispatched to dp_rank 0 but bootstrap_room … implies dp_rank 1", or a KeyError in the
    table of the prefill's ranks; with dp N about one request in N works, and dp 1 always does.

    What else it could be: all requests fail alike where address or port is wrong (PD304, PD309).

    What to do: choose the rank in one place: the router, or the room's number with the same load-balance
    method on both sides; or let decode ask (the variable that the line names), or upgrade.
    """
    lines = facts.events("pair.dp_rank")
    if not lines:
        return
    names = writers(lines)
    dp = [
        f"{e.name}: dp {n}"
        for e in facts.engines
        if (n := e.traces.settings.get("dp") or e.traces.settings.get("dp_size"))
    ]
    yield rule.finding(
        listed(names),
        f"{listed(names)} and its peers take different data-parallel ranks for the same request.",
        [*quoted(lines), *dp],
        f"{_FORCE}=1 on both sides, or one load-balance method for both, or dp 1",
        touches=[*names, *partners(facts, names)],
        since=since(lines),
    )
