"""PD641: requests were sent to workers that were leaving."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count


@rule("PD641", "requests lost while workers change", Severity.ERROR, ["logs"], echo_of=["PD668"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A router chose workers that had left or were about to, and nobody told the requests.

    What it looks like: workers are added and removed, "no active endpoint found", and requests that end only
    when the client goes away, minutes later; no worker logs an error.

    What else it could be: a rollout that drains loses nothing. Leases that are lost together are PD668.

    What to do: find why workers come and go (scaling, leases, probes), let a worker drain before it leaves,
    and give requests a timeout at the router.
    """
    for router in facts.parties:
        gone = list(router.traces.of("router.no_endpoint"))
        changes = list(router.traces.of("router.worker_left"))
        given_up = list(router.traces.of("router.client_left"))
        if not gone or not changes or not given_up:
            continue
        yield rule.finding(
            router.name,
            f"{router.name} lost requests while workers left ({count(len(changes), 'time')}).",
            [*quoted(gone, 2), *quoted(given_up, 2), *quoted(changes, 2)],
            "drain workers before they leave, and set a request timeout at the router",
            since=since([*gone, *given_up]),
            hypotheses=[
                Hypothesis(
                    "requests went to workers that had left",
                    "compare the chosen worker's id of a lost request with the time it was removed",
                ),
                Hypothesis(
                    "workers come and go because their leases or probes fail",
                    "restarts and lease lines of the workers of that time",
                ),
            ],
        )
