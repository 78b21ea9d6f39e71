"""PD635: the only running request finds no page, because others' KV was admitted ahead of it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_QUEUES = ("queue_prealloc", "queue_transfer")


@rule("PD635", "the last running request is starved", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Preallocated and transferred KV fill decode's pool until the one request that runs has no page left.

    What it looks like: "No space left for only one request", available_size 0, running 1, with requests in
    the prealloc and transfer queues. Long requests (128K) and a reservation of a few thousand tokens each.

    What else it could be: one request that is longer than the whole pool does it with empty queues.

    What to do: reserve more (--num-reserved-decode-tokens), lower the concurrency of long requests, take a
    build whose admission counts what running requests will still need.
    """
    events = facts.events("sglang.last_request")
    if not events:
        return
    names = writers(events)
    held = [
        f"{n}: {queue} {depth:.0f}"
        for n in names
        if (p := facts.party(n))
        for queue in _QUEUES
        if (depth := p.traces.last(queue))
    ]
    yield rule.finding(
        listed(names),
        f"{listed(names)} starved its only running request: KV of preallocated and transferring requests "
        "took the last page.",
        [*quoted(events), *held],
        "reserve more tokens for running requests (--num-reserved-decode-tokens) and restart decode",
        touches=names,
        since=since(events),
    )
