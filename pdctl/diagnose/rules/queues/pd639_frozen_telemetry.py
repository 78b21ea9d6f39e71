"""PD639: an engine's numbers are old, so its empty queues prove nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.loads import values
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed, span

_OLD = 10.0


def _age(facts: Facts, view: EngineView) -> float | None:
    """How old its newest published numbers are, where they carry their own time."""
    times = [r.at for r in view.traces.readings if r.source == "json" and r.at is not None]
    return facts.at - max(times) if times else None


@rule("PD639", "frozen telemetry hides held requests", Severity.ERROR, ["readings"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """SGLang publishes its numbers when a batch ends or when it is truly idle: hidden work freezes them.

    What it looks like: prefill and decode show empty queues and nothing running, the timestamps in
    /v1/loads are old, the router counts tens of requests that do not move. A truly idle engine publishes
    all the time; one whose requests sit between prefill and decode does not.

    What else it could be: fresh timestamps and empty queues with a router that counts requests are
    forgotten or leaked counts of the router.

    What to do: GET /health_generate on the prefill publishes fresh numbers; then look at the queues. Abort
    on decode first, then on the prefill; if they stay, restart the pair: `pdctl restart --co CELL`.
    """
    if not isinstance(facts.router, RouterView):
        return
    active = values(facts.router.traces, "router_active")
    if not active or min(active) < 1:
        return
    old = [(v, age) for v in facts.engines if (age := _age(facts, v)) is not None and age > _OLD]
    if not old or any(v.traces.last("running") for v in facts.engines):
        return
    names, oldest = [v.name for v, _ in old], max(age for _, age in old)
    cell = old[0][0].member.cell
    yield rule.finding(
        listed(names),
        f"{listed(names)} last published numbers {span(oldest)} ago and "
        f"{facts.router.name} counts {active[-1]:.0f} requests: the empty queues are frozen telemetry, "
        "requests sit between prefill and decode.",
        [f"{v.name}: numbers are {span(age)} old" for v, age in old],
        f"pdctl restart --co {cell}",
        touches=[facts.router.name, *names],
        since=facts.at - oldest,
        hypotheses=(
            Hypothesis(
                "rooms stand in the prefill's inflight or bootstrap queue",
                "GET /health_generate on the prefill, then read num_prefill_inflight_queue_reqs again",
            ),
            Hypothesis(
                "a rank or a transfer worker is stuck",
                "py-spy dump the schedulers of both sides: a thread in check_xfer_state or a collective?",
            ),
        ),
    )
