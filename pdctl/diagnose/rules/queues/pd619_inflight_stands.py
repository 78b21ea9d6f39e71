"""PD619: a foreign prefill's inflight queue stands while nothing is computed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import at_cap, at_work, stands
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import foreign
from pdctl.diagnose.words import count, listed, span

_LONG = 10.0


def _doubts(peer: str) -> list[Hypothesis]:
    return [
        Hypothesis(
            f"{peer} is gone or was restarted and nobody aborts these rooms",
            f"compare {peer}'s start with the age of the oldest room",
        ),
        Hypothesis(
            "a transfer worker is stuck on one peer",
            "py-spy dump the prefill's scheduler: does a thread stand in check_xfer_state?",
        ),
    ]


def _polled(view: EngineView) -> list[str]:
    """Threads that ask for the state of a transfer."""
    return [
        f"{view.name}, {stack.thread or stack.process}: {frame}"
        for stack in view.traces.stacks
        for frame in stack.frames[:3]
        if re.search(r"check_?xfer|get_?xfer_?status", frame, re.IGNORECASE)
    ][:2]


@rule("PD619", "inflight queue stands still", Severity.ERROR, ["readings"], echo_of=["PD510", "PD512"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Requests stay in the prefill's inflight queue, nothing runs, and no timer will end them.

    What it looks like: the inflight gauge is flat and above zero, the age of its oldest entry grows with the
    clock, the GPU idles. SGLang has no bound on this queue. After "pending_bootstrap" was logged once for a
    parked request, it is the optimistic prefill that re-queues it for ever, with a busy scheduler thread.

    What else it could be: decode at its cap is backpressure (PD630). A restart of decode just before is
    PD510.

    What to do: for parked requests restart the prefill and take a build that ends them. Otherwise abort on
    decode first, then on the prefill; if the queue does not drain, restart the pair.
    """
    for view in facts.engines:
        seen = view.traces
        lasts = stands(seen, "queue_inflight")
        if not foreign(view) or view.role == "decode" or lasts < _LONG:
            continue
        if at_work(seen) or seen.last("running"):
            continue
        decodes = [e for e in facts.engines if e.role == "decode"]
        if any(at_cap(d.traces) for d in decodes):
            continue
        parked = list(seen.of("sglang.parked"))
        depth = int(seen.last("queue_inflight") or 0)
        polled = _polled(view)
        why = (
            "parked requests of the optimistic prefill are put back for ever"
            if parked
            else "a transfer worker polls a transfer that never ends"
            if polled
            else "their KV is not handed over and no timer bounds it"
        )
        peer = listed(d.name for d in decodes) if decodes else "decode"
        yield rule.finding(
            view.name,
            f"{view.name} keeps {count(depth, 'request')} in its inflight queue and computes nothing: {why}.",
            [f"inflight {depth} for {span(lasts)}, running 0", *quoted(parked), *polled],
            f"pdctl restart {view.name}" if parked else f"pdctl restart --co {view.member.cell}",
            touches=[view.name, *(d.name for d in decodes if not parked)],
            since=since(parked) or facts.at - lasts,
            hypotheses=() if parked or polled else _doubts(peer),
        )
