"""PD636: decode still holds rooms that the prefill gave up."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_cap, stands
from pdctl.diagnose.rooms import Failure, Kind, failures
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.timers import of
from pdctl.diagnose.words import span


@rule("PD636", "decode waits for rooms that the prefill gave up", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Rooms wait in decode's prealloc queue for longer than the prefill keeps them: the pair disagrees.

    What it looks like: the prefill ends rooms in KVPoll.Bootstrapping at its timer; decode's prealloc queue
    stays, its oldest entry older than that timer. Decode's own timer begins only when it has sent its pages,
    so this wait has no bound.

    What else it could be: decode at its cap is capacity (PD630): these rooms would be served. Prealloc that
    stands after a retraction is PD631.

    What to do: restart decode if they do not go away, `pdctl restart NAME`; take a build with an early
    timeout; keep the prefill's timer above decode's real admission wait.
    """
    for prefill, decode in facts.edges():
        limit = next((t.value for n, t in of(prefill).items() if n == "bootstrap"), 300.0)
        age = decode.traces.last("queue_prealloc_age")
        gave_up: list[Failure] = [
            f for f in failures(facts, prefill.name) if f.kind is Kind.TIMEOUT and f.state == "Bootstrapping"
        ]
        depth = decode.traces.last("queue_prealloc") or 0.0
        retracted = list(decode.traces.of("sglang.retracted"))
        older = age is not None and age > limit
        left = bool(gave_up) and stands(decode.traces, "queue_prealloc") and not at_cap(decode.traces)
        if not depth or retracted or not (older or left):
            continue
        shown = f", the oldest for {span(age)}" if age is not None else ""
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{decode.name} holds {depth:.0f} rooms in its prealloc queue{shown}, and {prefill.name} gives "
            f"up after {limit:g} s: they wait for a prefill that no longer knows them.",
            [f"{decode.name}: prealloc {depth:.0f}{shown}", *quoted([f.event for f in gave_up], 2)],
            f"pdctl restart {decode.name}",
            touches=[prefill.name, decode.name],
            since=min((f.began for f in gave_up if f.began is not None), default=None),
        )
