"""The order in which the deadlines of one request must fire: the inner one first.

A prefill that gives up before its decode would fail transfers that decode still waits for with good
reason; a router that gives up before both would hide which side was slow.
"""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.fleet.catalogue import deadline_order

TRANSFER = "PD_DECODE_TRANSFER_TIMEOUT"
PREALLOC = "PD_DECODE_PREALLOC_TIMEOUT"
INFLIGHT = "PD_PREFILL_INFLIGHT_TIMEOUT"
QUEUE = "PD_QUEUE_TIMEOUT"
IDLE = "PD_ROUTER_IDLE_TIMEOUT"
TOTAL = "PD_ROUTER_TOTAL_TIMEOUT"


def chain_problems(values: Mapping[str, float]) -> list[str]:
    """One sentence for every pair out of order; a pair with a value unknown here is left out."""
    return [
        f"{inner}={values[inner]:g} must be below {outer}={values[outer]:g}: {why}."
        for inner, outer, why in deadline_order()
        if inner in values and outer in values and values[inner] >= values[outer]
    ]
