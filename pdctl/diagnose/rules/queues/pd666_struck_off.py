"""PD666: the router strikes off workers that work."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import by_endpoint, taken_back
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import moves, stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.rules.queues.pd662_breaker import ready_long_ago


def _never_taken(rule: Rule, router: Party, lines: list[Event], engines: list[str]) -> Finding:
    """Workers that are ready, and whose checks fail from the first on."""
    return rule.finding(
        router.name,
        f"{router.name} calls workers unhealthy that are ready.",
        quoted(lines),
        "ask the worker the very question that the router asks, from the router's host",
        touches=[router.name, *engines],
        since=since(lines),
        hypotheses=[
            Hypothesis(
                "it asks with another protocol, port or path than they serve (HTTP or gRPC, base path)",
                "the URL of the failing line by hand; name protocol and port of the worker explicitly",
            ),
            Hypothesis("the worker does not answer checks in time", "time curl its health from there"),
        ],
    )


_FEW = 3  # failed checks of one worker that its restart explains


def _standing(router: Party, lines: list[Event]) -> list[Event]:
    """Without those of workers that were taken back after a few failed checks."""
    over = [
        e for of_one in by_endpoint(lines).values() if len(of_one) <= _FEW and taken_back(router, of_one[-1])
        for e in of_one
    ]  # fmt: skip
    return [e for e in lines if e not in over]


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
        lines = _standing(router, list(router.traces.of("router.unhealthy")))
        if router.role != "router" or not lines:
            continue
        if len(working) < len(facts.engines):
            if len(lines) > 1 and not working and ready_long_ago(facts, lines):
                yield _never_taken(rule, router, lines, [e.name for e in facts.engines])
            continue
        yield rule.finding(
            router.name,
            f"{router.name} calls workers unhealthy that work.",
            [*quoted(lines), f"tokens come from {', '.join(working)}"],
            "raise the timeout and the failure count of the router's health check",
            touches=[router.name, *working],
            since=since(lines),
        )
