"""PD661: health probes pile up in the scheduler and break a batch."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD661", "health probes crashed the batch", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Probes that timed out were not cancelled; after a stall they run as one batch, which fails.

    What it looks like: a short stall, then an end with a shape that does not match ("q.shape[0] … does not
    match qo_indptr"), and a last batch of nothing but one-token requests named HEALTH_CHECK.

    What else it could be: the same mismatch with users' requests in the batch is a kernel's or scheduler's.

    What to do: make the interval of probes longer than their timeout, so that at most one is under way, and
    upgrade to a version that cancels them.
    """
    for view in facts.engines:
        traces = view.traces
        shapes, probes = list(traces.of("health.shape")), list(traces.of("health.probe"))
        if not shapes or not probes:
            continue
        yield rule.finding(
            view.name,
            f"{view.name} ended on a batch of health probes that had piled up.",
            [*quoted(shapes, 2), *quoted(probes)],
            "make the probe's interval longer than its timeout; upgrade",
            since=since(shapes),
        )
