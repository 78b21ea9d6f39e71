"""PD612: a queue on one pipeline rank never empties."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import aborts
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_work, stands
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_QUEUES = ("queue_bootstrap", "queue_inflight", "queue_prealloc", "queue_transfer", "waiting")


@rule("PD612", "orphans in one rank's queue", Severity.WARNING, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """One rank's queue stays above zero with no traffic while the first rank's is empty: orphans.

    What it looks like: sglang:num_prefill_bootstrap_queue_reqs on a non-first pipeline rank has a positive
    floor at zero requests a second; it rises with aborts (disconnects, timeouts, abort_all).

    What else it could be: the same queue above zero on all ranks is a peer that never came (PD525). Queues
    that differ while the engine is stuck are a desync (PD613).

    What to do: restart the prefill to clear them, `pdctl restart NAME`; take a build in which aborts go
    through the ranks' consensus.
    """
    for view in facts.engines:
        seen = view.traces
        if len(seen.ranks) < 2 or at_work(seen) or seen.last("running"):
            continue
        for queue in _QUEUES:
            held = [r for r in seen.ranks if stands(seen, queue, r)]
            empty = [r for r in seen.ranks if seen.last(queue, r) == 0]
            if not held or not empty or seen.ranks[0] in held:
                continue
            shown = [f"{r}: {queue} {seen.last(queue, r):.0f}" for r in seen.ranks]
            yield rule.finding(
                view.name,
                f"{view.name} has orphans in {queue} of {listed(held)} only, with no traffic: entries that "
                "the ranks' consensus skipped, left by aborts.",
                [*shown, *aborts.evidence(seen)],
                f"pdctl restart {view.name}",
            )
