"""PD633: decode has been slow since it put requests back."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Reading
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import span

_FALL = 4.0
_FULL = 0.8


def _around(readings: list[Reading], at: float) -> tuple[Reading, list[Reading]] | None:
    rated = [r for r in readings if "generation_tps" in r.numbers and "running" in r.numbers and r.at]
    before = [r for r in rated if (r.at or 0) <= at]
    after = [r for r in rated if (r.at or 0) > at]
    return (before[-1], after) if before and len(after) > 1 else None


@rule("PD633", "slow since a retraction", Severity.WARNING, ["readings"], echo_of=["PD631"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Throughput fell several times over when decode put requests back, and it stays there.

    What it looks like: as many or more requests run than before, KV stays above 80 %, tokens a second are a
    fraction of what they were, each step takes seconds; a retraction lies in between. GPU clocks are normal.

    What else it could be: fewer running requests give fewer tokens. Throttled clocks or another process on
    the GPU slow everything, with or without a retraction. Nothing at all is PD631.

    What to do: lower the concurrency and see whether it recovers; restart decode if it does not.
    """
    for view in facts.engines:
        put_back = [e for e in view.traces.of("sglang.retracted") if e.at is not None]
        if not put_back:
            continue
        around = _around([r for r in view.traces.readings if r.rank == ""], put_back[0].at or 0.0)
        if around is None:
            continue
        before, after = around
        was, now = before.numbers["generation_tps"], max(r.numbers["generation_tps"] for r in after)
        running = after[-1].numbers["running"]
        full = after[-1].numbers.get("kv_usage", 0.0) >= _FULL
        if not now or was < _FALL * now or running < before.numbers["running"] or not full:
            continue
        lasts = (after[-1].at or 0) - (put_back[0].at or 0)
        yield rule.finding(
            view.name,
            f"{view.name} makes {now:.0f} tokens/s with {running:.0f} running, {was:.0f} with "
            f"{before.numbers['running']:.0f} before it put requests back {span(lasts)} ago.",
            [*quoted(put_back, 2), f"KV {after[-1].numbers['kv_usage']:.0%} in use since"],
            f"pdctl restart {view.name}",
            since=since(put_back),
            hypotheses=(
                Hypothesis(
                    "it thrashes: requests are put back and computed again", "halve the concurrency for 60 s"
                ),
                Hypothesis(
                    "retraction left the batch on a slow path (no graph, host copies)",
                    "compare `cuda graph: True` in the statistics lines before and after",
                ),
                Hypothesis("the GPU is throttled", "nvidia-smi -q -d CLOCK,PERFORMANCE now"),
            ),
        )
