"""What shows that requests were aborted: lines and counters; pure."""

from __future__ import annotations

from pdctl.adapters.traces import Event, Traces
from pdctl.diagnose.evidence import quoted

_SIGNS = ("sglang.aborted", "vllm.aborted")


def lines(traces: Traces) -> list[Event]:
    return list(traces.of(*_SIGNS))


def evidence(*parties: Traces) -> list[str]:
    """Aborts as evidence, empty when there were none."""
    told = [line for traces in parties for line in quoted(lines(traces), 1)]
    for traces in parties:
        moved, last = traces.moved("aborted_total"), traces.last("aborted_total")
        if moved:
            told.append(f"aborted requests grew by {moved:.0f}")
        elif last:
            told.append(f"{last:.0f} aborted requests so far")
    return told
