"""PD634: decode ran full, and the code that puts requests back cannot do it for this KV pool."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_cap
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD634", "full, and retraction is not possible", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Two faults: the pool filled up (the trigger), and retraction copies KV to the host, which this pool
    type cannot.

    What it looks like: NotImplementedError from get_cpu_copy in the retract path, then AttributeError on
    kv_cache_cpu, and the scheduler ends; KV was at 100 % just before.

    What else it could be: the same exception with an almost empty pool is something else that offloads.

    What to do: both: give decode headroom so that it does not retract (lower concurrency, more KV), and take
    a build whose pool supports the copy.
    """
    events = facts.events("sglang.offload_missing")
    if not events:
        return
    names = writers(events)
    put_back = [e for e in facts.events("sglang.retracted") if e.party in names]
    full = [f"{n}: {why}" for n in names if (p := facts.party(n)) and (why := at_cap(p.traces))]
    yield rule.finding(
        listed(names),
        f"{listed(names)} ran out of KV and crashed while it put requests back: its KV pool cannot be copied "
        "to the host. The capacity is the trigger, the missing code the second fault.",
        [*full, *quoted(put_back, 1), *quoted(events)],
        "lower the concurrency or give decode more KV, and take a build that can retract with this pool",
        touches=names,
        since=since([*put_back, *events]),
    )
