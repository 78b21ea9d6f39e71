"""The order in which the deadlines of one request must fire: the inner one first.

A prefill that gives up before its decode would fail transfers that decode still waits for with good
reason; a router that gives up before both would hide which side was slow.
"""

from __future__ import annotations

from collections.abc import Mapping

TRANSFER = "PD_DECODE_TRANSFER_TIMEOUT"
PREALLOC = "PD_DECODE_PREALLOC_TIMEOUT"
INFLIGHT = "PD_PREFILL_INFLIGHT_TIMEOUT"
IDLE = "PD_ROUTER_IDLE_TIMEOUT"
TOTAL = "PD_ROUTER_TOTAL_TIMEOUT"

# (inner, outer, why inner < outer)
ORDER: tuple[tuple[str, str, str], ...] = (
    (
        TRANSFER,
        INFLIGHT,
        "decode must give up first, so that no page is freed while it still reads",
    ),
    (
        PREALLOC,
        INFLIGHT,
        "a wait for free decode pages is legitimate and must end under its own name",
    ),
    (INFLIGHT, IDLE, "the router must not call a request silent while its transfer may still finish"),
    (IDLE, TOTAL, "a silent request must be named as silent, not as too long"),
)


def chain_problems(values: Mapping[str, float]) -> list[str]:
    """One sentence for every pair out of order; a pair with a value unknown here is left out."""
    return [
        f"{inner}={values[inner]:g} must be below {outer}={values[outer]:g}: {why}."
        for inner, outer, why in ORDER
        if inner in values and outer in values and values[inner] >= values[outer]
    ]
