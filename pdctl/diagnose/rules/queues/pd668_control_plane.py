"""PD668: the store of leases failed for a moment and everything that hangs on it restarted."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, listed

_TOGETHER = 120.0


@rule("PD668", "leases lost", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Components lost their lease in the control plane's store, and ended or were struck off for it.

    What it looks like: lease keep-alive lost in several logs within seconds, then frontend, planner and
    workers restart together; the store's own log shows a leader change or slow disk. A page of models may
    still be 200.

    What else it could be: one component alone that loses its lease is that component's freeze or host. A
    lease with a negative rest is a clock (PD720).

    What to do: mend the store (disk latency, quorum); then start in order: store, workers, router. Raise
    the lease's time above the store's longest pause.
    """
    lines = facts.events("store.lease_lost")
    names = writers(lines)
    leaders = facts.events("store.leader_changed")
    starts = sorted(p.traces.started_at for p in facts.parties if p.traces.started_at is not None)
    together = len(starts) > 1 and starts[-1] - starts[0] < _TOGETHER
    restarted = [p.name for p in facts.parties if p.traces.restarts or p.traces.ended not in (None, 0)]
    if len(names) < 2 and not (names and (leaders or (together and restarted))):
        return
    yield rule.finding(
        listed(names),
        f"{count(len(names), 'component')} lost their lease in the store: {listed(names)}.",
        [*quoted(leaders, 2), *quoted(lines, 4), *([f"restarted: {listed(restarted)}"] if restarted else [])],
        "mend the store, then start workers and then the router",
        touches=[*names, *restarted],
        since=since([*lines, *leaders]),
    )
