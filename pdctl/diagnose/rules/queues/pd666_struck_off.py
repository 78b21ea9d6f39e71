"""PD666: the router strikes off workers that work."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import moves, stall
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD666", "workers that work are struck off", Severity.WARNING, ["logs"], echo_of=["PD662"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A router calls workers unhealthy whose tokens come: its health check is too strict for a busy engine.

    What it looks like: "unhealthy" or failed health checks in the router's log, engines with a long queue
    whose token counters climb; capacity swings with load.

    What else it could be: a worker that ended or stands still is struck off rightly (PD201, PD443).

    What to do: give the router's check a timeout above the engine's longest prefill step and more failures
    before it acts, or have it ask an endpoint that does not generate.
    """
    if not facts.engines or any(died(e) or stall(e.traces) for e in facts.engines):
        return
    working = [e.name for e in facts.engines if moves(e.traces)]
    for router in facts.parties:
        lines = list(router.traces.of("router.unhealthy"))
        if router.role != "router" or not lines or len(working) < len(facts.engines):
            continue
        yield rule.finding(
            router.name,
            f"{router.name} calls workers unhealthy that work.",
            [*quoted(lines), f"tokens come from {', '.join(working)}"],
            "raise the timeout and the failure count of the router's health check",
            touches=[router.name, *working],
            since=since(lines),
        )
