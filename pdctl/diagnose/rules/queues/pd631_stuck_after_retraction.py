"""PD631: decode's admission stands since it put requests back for lack of pages."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_work, stands, values
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_LONG = 30.0  # seconds that a retracted request waits with nothing running


@rule("PD631", "stuck after a retraction", Severity.ERROR, ["logs"], echo_of=["PD634", "PD635"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode ran out of pages and put requests back; they came again into a queue that does not move.

    What it looks like: "Decode out of memory happened" or "Retract requests", then requests that stay in the
    prealloc (or retracted) queue with waiting_for_input False and a receiver that is already Success, nothing
    runs and no token comes. While the retracted queue is not empty decode polls no transfer at all.

    What else it could be: a prealloc queue without such an event waits for the prefill. With requests
    running it is capacity. Slow after a retraction, and not still, is PD633.

    What to do: restart decode, `pdctl restart NAME`, and give it KV headroom (lower max running requests,
    more --num-reserved-decode-tokens); take a build that resets the retracted receiver.
    """
    for view in facts.engines:
        seen = view.traces
        put_back = list(seen.of("sglang.retracted"))
        left = stands(seen, "queue_retracted") >= _LONG
        if not (put_back or left) or at_work(seen) or seen.last("running"):
            continue
        states = list(seen.of("sglang.prealloc_state"))
        queues = [
            f"{queue} {depth[-1]:.0f}"
            for queue in ("queue_prealloc", "queue_retracted")
            if (depth := values(seen, queue)) and depth[-1] > 0
        ]
        if not queues and not states:
            continue
        why = (
            "one that fits nowhere keeps its queue from emptying, and no transfer is polled meanwhile"
            if left
            else "they are queued again with the state of a transfer that is already done"
        )
        yield rule.finding(
            view.name,
            f"{view.name} stands since it ran out of pages and put requests back: {why}.",
            [*quoted(put_back, 2), *quoted(states, 2), *queues],
            f"pdctl restart {view.name}",
            since=since(put_back),
        )
