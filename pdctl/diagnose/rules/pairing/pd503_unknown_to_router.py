"""PD503: engines that serve and that the router was never told of."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.missing import Missing, known


@rule("PD503", "the router does not know an engine", Severity.WARNING, ["router.state", "engine.state"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine of the fleet file runs, and the running router was started without it.

    What it looks like: every engine is ready and the new cell stays idle for ever, however busy the others
    are. Verbs that speak to the router of that engine answer unknown_engine. No request fails for it, unless
    the router knows no engine that could take one.

    What else it could be: an engine that the router lists and does not use is not ready to it, cordoned, or
    has lost its link (PD502, PD604). One that does not run is PD201. While a deploy is under way the router
    is told last (info).

    What to do: `pdctl deploy --limit ROUTER` starts the router with every engine of the fleet file; what it
    carries at that moment fails, so choose a quiet one.
    """
    router = facts.router_state
    # Routers of other kinds know their workers by addresses of their own.
    if isinstance(router, Missing) or router.kind != "bundled" or isinstance(facts.router, Missing):
        return
    told = {engine.instance for engine in router.engines}
    strangers = [e for e in facts.engines if known(e.state) and e.role != "both" and e.name not in told]
    under_way = known(facts.run) and bool(facts.run)
    front = facts.router.name
    for cell in dict.fromkeys(e.member.cell for e in strangers):
        names = [e.name for e in strangers if e.member.cell == cell]
        yield rule.finding(
            f"{front} -> {', '.join(names)}",
            f"{front} runs and was never told of {', '.join(names)}: it sends nothing there.",
            [
                f"{', '.join(names)}: in the fleet file, in cell {cell}, and running",
                f"{front} lists {', '.join(sorted(told)) or 'no engine'}",
                *([f"the fleet's lock: {facts.run}"] if under_way else []),
            ],
            f"pdctl deploy --limit {front}",
            touches=names,
            severity=Severity.INFO if under_way else None if told else Severity.ERROR,
        )
