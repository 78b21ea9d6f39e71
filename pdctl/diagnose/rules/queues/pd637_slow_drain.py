"""PD637: a prefill's KV fills with requests that decode accepted and that are not handed over fast enough."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Traces
from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_cap, grows, values
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import foreign

_MANY = 32
_SHORT, _LONG = 5.0, 60.0  # seconds of growth, of a fall that is too slow
_SLOW = 0.25  # share of the queue that drained over all readings


def _piles_up(seen: Traces) -> bool:
    """Whether the inflight queue grows, or hardly falls."""
    depth = values(seen, "queue_inflight")
    times = [at for at, _ in seen.numbers("queue_inflight") if at is not None]
    if len(depth) < 3 or depth[-1] < _MANY:
        return False
    lasts = times[-1] - times[0] if times else _LONG  # a log without times
    slow = (1 - _SLOW) * max(depth) <= depth[-1] < max(depth) and lasts >= _LONG
    return slow or (grows(depth, 1.0) and lasts >= _SHORT)


@rule("PD637", "hand-over slower than prefill", Severity.WARNING, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Requests pile up between prefill and decode: decode has answered the handshake, KV leaves slowly.

    What it looks like: #transferring-req (inflight) grows into the hundreds, or hardly falls, with
    #unbootstrapped-req 0; the prefill's token usage creeps up until it is out of memory, or the second half
    of a burst takes ten times as long as the first.

    What else it could be: unbootstrapped requests and decode at its cap are backpressure (PD630). A queue
    that stands with nothing computed is a wedge (PD619).

    What to do: compare the drain rate with decode's completions: equal is decode's slots, lower with an
    idle NIC is the transfer workers. Limit inflight at the router meanwhile; a smaller page wastes less.
    """
    decodes = [e for e in facts.engines if e.role == "decode"]
    if any(at_cap(d.traces) for d in decodes):
        return
    for view in facts.engines:
        if not foreign(view) or view.role == "decode":
            continue
        depth = values(view.traces, "queue_inflight")
        if not _piles_up(view.traces) or view.traces.last("queue_bootstrap"):
            continue
        usage = values(view.traces, "kv_usage")
        shown = " -> ".join(f"{d:.0f}" for d in depth[-5:])
        kv = [f"KV in use {usage[0]:.0%} -> {usage[-1]:.0%}"] if usage else []
        oom = list(view.traces.of("memory.oom"))
        yield rule.finding(
            view.name,
            f"{view.name} holds KV of {depth[-1]:.0f} requests that are being handed over, none waits for a "
            "handshake: the hand-over is slower than the prefill.",
            [f"inflight {shown}, unbootstrapped 0", *kv, *quoted(oom, 1)],
            "limit requests in flight at the router",
            touches=[view.name, *(d.name for d in decodes)],
            since=next((at for at, _ in view.traces.numbers("queue_inflight") if at is not None), None),
            severity=Severity.ERROR if oom else None,
            hypotheses=(
                Hypothesis(
                    "decode frees slots only as fast as its requests finish",
                    "compare the drain rate of the inflight queue with decode's completions a second",
                ),
                Hypothesis(
                    "too few transfer workers or a slow path",
                    "read the NIC's byte counters: far below the line rate with a full queue is the workers",
                ),
            ),
        )
