"""PD343: NIXL refuses what an engine asks of it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import past
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.rules.network.pd325_backend_error import NAMED

_STALE = Hypothesis("the peer's metadata is gone or old", "pdctl restart --co CELL, then one request")
_PARTS = Hypothesis(
    "a part of the model's state lies outside of what was registered (window, Mamba, MTP or indexer pools)",
    "the same pair with a plain attention model and without speculation: does it work?",
)
_SIDES = Hypothesis(
    "the two sides list different pieces (layers, heads, page size, TP)",
    "compare both start lines; try equal TP and page size",
)
_KIND = Hypothesis(
    "no backend that both sides have takes this kind of memory",
    "compare the NIXL backends and plugins of both sides (nixl_backends, NIXL_PLUGIN_DIR)",
)
_LIVE = {
    "NOT_FOUND": (_PARTS, _STALE, _KIND),
    "NOT_SUPPORTED": (_KIND, _PARTS),
    "INVALID_PARAM": (_SIDES, _PARTS),
    "MISMATCH": (_SIDES, _KIND),
}


@rule(
    "PD343",
    "NIXL refuses a call",
    Severity.ERROR,
    ["logs"],
    echo_of=[*NAMED, "PD325", "PD329", "PD117", "PD121"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """NIXL answers NOT_FOUND, NOT_SUPPORTED, INVALID_PARAM or MISMATCH: it does not know what is asked for.

    What it looks like: nixlNotFoundError: NIXL_ERR_NOT_FOUND and the like where a transfer is made or the
    peer's metadata is loaded. Nothing was sent: no network is at fault.

    What else it could be: NIXL_ERR_BACKEND is a backend that failed at its work (PD325), REMOTE_DISCONNECT a
    peer that went away. Registration that failed before (PD323) leaves nothing to be found.

    What to do: one thing at a time: co-restart the pair; equal TP and page size; a plain attention model;
    then a build whose connector knows this model's state.
    """
    for party in facts.parties:
        lines = [e for e in party.traces.of("nixl.refused") if not past(party, e)]
        if not lines:
            continue
        status = lines[0].values["status"]
        yield rule.finding(
            party.name,
            f"NIXL refuses a call of {party.name}: NIXL_ERR_{status}.",
            quoted(lines),
            "pdctl restart --co CELL, then one request; if it fails again, compare both start lines",
            touches=[party.name, *partners(facts, [party.name])],
            since=since(lines),
            hypotheses=_LIVE[status],
        )
