"""PD660: a health check calls an engine dead that is busy."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.progress import moves, stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_PREFILLS = 3  # batches after a failed check that show work


_HUNG = ("PD440", "PD441", "PD442", "PD443", "PD444", "PD446", "PD451", "PD453")


@rule(
    "PD660",
    "unhealthy by its check, working by its counters",
    Severity.WARNING,
    ["engine.reach"],
    echo_of=_HUNG,
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A health check that waits for a token fails because a long prefill gives none in that time.

    What it looks like: "Health check failed. Server couldn't get a response from detokenizer for last 20
    seconds" while prompts are long; the count of prompt tokens climbs, prefill batches follow one another.

    What else it could be: counters that stand still are a hang (PD443), and the check is right. A check
    that ends an engine for it is PD221.

    What to do: raise the check's own time (SGLANG_HEALTH_CHECK_TIMEOUT) and the probe's above it, or make
    prefill chunks smaller.
    """
    for view in facts.engines:
        traces = view.traces
        lines = list(traces.of("health.failed"))
        if not lines or stall(traces):
            continue
        after = [e for e in traces.of("stats.prefill") if e.order > lines[0].order]
        # What it said long before the check failed shows nothing of then.
        works = moves(traces, at=lines[-1].at) or len(after) >= _PREFILLS
        seconds = next((e.values["seconds"] for e in lines if "seconds" in e.values), "20")
        yield rule.finding(
            view.name,
            f"{view.name} works and its health check fails: no token came within {seconds} s."
            if works
            else f"The health check of {view.name} failed; whether it works is not shown.",
            [*quoted(lines, 2), *quoted(after, 2)],
            "raise SGLANG_HEALTH_CHECK_TIMEOUT and the probe's timeout, or lower --chunked-prefill-size",
            since=since(lines),
            hypotheses=[]
            if works
            else [
                Hypothesis(
                    "slow: one prefill takes longer than the check waits",
                    "its prompt token counter over 10 s",
                ),
                Hypothesis("hung: nothing moves", "its token counters over 10 s with requests running"),
            ],
        )
