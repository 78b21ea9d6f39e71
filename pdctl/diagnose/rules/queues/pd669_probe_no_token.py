"""PD669: a generating health check answers 200 and the engine makes no token."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Traces
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.progress import COUNTERS
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import span


def _still(traces: Traces) -> tuple[float, float | None] | None:
    """(seconds, since) over which requests came in and no token went out."""
    points = [r for r in traces.readings if COUNTERS[1] in r.numbers and not r.rank]
    if len(points) < 2 or points[0].at is None or points[-1].at is None:
        return None
    asked = (traces.moved("requests_total") or 0) > 0
    tokens = (traces.moved(COUNTERS[0]) or 0) + (traces.moved(COUNTERS[1]) or 0)
    seconds = points[-1].at - points[0].at
    return (seconds, points[0].at) if asked and not tokens and seconds >= 30 else None


@rule("PD669", "accepts and never generates", Severity.ERROR, ["readings"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Requests come in, health says 200, and neither prompt nor generated tokens move.

    What it looks like: /health or /health_generate is 200 for an hour with a scheduler that is dead: the
    check takes any recent sign of life, such as other traffic's, for an answer to its own probe.

    What else it could be: requests that are refused at once (4xx) are no work. An engine that waits for KV
    of a prefill shows it in its queues.

    What to do: ask for one token and see the counter rise by it; make the probe's period longer than its
    timeout. Then take stacks and restart.
    """
    for view in facts.engines:
        found = _still(view.traces)
        if found is None or view.traces.health not in ("ok", ""):
            continue
        yield rule.finding(
            view.name,
            f"{view.name} accepts requests, says it is well, and made no token in {span(found[0])}.",
            [f"health: {view.traces.health or 'not asked'}", "requests rose, token counters did not"],
            f"pdctl restart --co {view.member.cell}",
            since=found[1],
            hypotheses=[
                Hypothesis(
                    "its scheduler is dead or stuck",
                    "one request of max_tokens 1: does the token counter rise by it?",
                ),
                Hypothesis(
                    "requests end before they reach the scheduler", "the status codes in its access log"
                ),
            ],
        )
