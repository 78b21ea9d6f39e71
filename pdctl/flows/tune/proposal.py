"""From measured dwells to a value with its margin and its reason, or a refusal; pure.

The tail is the largest healthy dwell seen. Of n independent samples the largest covers the share
0.05 ** (1 / n) of all transfers with 95 % confidence (Wilks' one-sided bound), which needs no assumption
on the shape of the distribution and says honestly what few samples are worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdctl.fleet.chain import IDLE, INFLIGHT, PREALLOC, QUEUE, TOTAL, TRANSFER

MARGIN = 3.0
FLOOR = 45.0
ENOUGH = 30


@dataclass(frozen=True)
class Proposal:
    """`value` is None for a refusal, and `reason` says why. `tail` and `value` in seconds."""

    value: float | None
    tail: float
    samples: int
    covered: float
    margin: float
    floor: float
    reason: str


def covered(samples: int) -> float:
    """The share of transfers that the largest of `samples` bounds with 95 % confidence."""
    return 0.05 ** (1.0 / samples) if samples else 0.0


def propose(
    load: Sequence[float],
    saturated: Sequence[float],
    *,
    was_saturated: bool = True,
    trouble: str = "",
    margin: float = MARGIN,
    floor: float = FLOOR,
) -> Proposal:
    """The inflight value: margin times the tail, at least the floor, rounded up to 5 s.

    `trouble` says which requests failed while it was measured, if any did.
    """
    samples = len(load) + len(saturated)
    tail = max([*load, *saturated], default=0.0)
    share = covered(samples)

    def refuse(why: str) -> Proposal:
        return Proposal(None, tail, samples, share, margin, floor, why)

    for name, values in (("under load", load), ("with decode saturated", saturated)):
        if len(values) < ENOUGH:
            return refuse(
                f"Only {len(values)} transfers were seen {name}; {ENOUGH} are needed for a tail. "
                + (f"{trouble}: run `pdctl diagnose`." if trouble else "Measure longer (--seconds).")
            )
    if not was_saturated:
        return refuse(
            "Decode was never saturated: no request waited for a place, so the longest legitimate wait was "
            "not seen. Measure longer, or lower max_running for the measurement."
        )
    value = math.ceil(max(floor, margin * tail) / 5.0) * 5.0
    why = f"{margin:g} times the longest healthy dwell ({tail:.2f} s)"
    if margin * tail < floor:
        why = f"the floor of {floor:g} s, which is over {why}"
    text = (
        f"{value:g} s: {why}; {samples} transfers, of which the longest bounds {100 * share:.1f} % of all "
        "with 95 % confidence."
    )
    return Proposal(value, tail, samples, share, margin, floor, text)


def chain(value: float, current: Mapping[str, float]) -> dict[str, float]:
    """The whole deadline chain around an inflight value: decode below it, the router above it."""
    below = max(1.0, float(math.floor(value * 5.0 / 6.0)))
    idle = max(current.get(IDLE, 0.0), math.ceil(value * 1.5))
    total = current.get(TOTAL, 0.0)
    wanted = {TRANSFER: below, PREALLOC: below, INFLIGHT: value, IDLE: idle}
    if total <= idle:
        wanted[TOTAL] = 4.0 * idle
    if current.get(QUEUE, math.inf) <= below:
        wanted[QUEUE] = value
    return {env: seconds for env, seconds in wanted.items() if current.get(env) != seconds}


def reasons(proposal: Proposal) -> dict[str, str]:
    """Why each value of the chain is what it is, to be kept with it."""
    inflight = f"the inflight timeout of {proposal.value:g} s"
    below = f"5/6 of {inflight}"
    return {
        TRANSFER: f"{below}: decode gives up first, so that no page is freed while it still reads.",
        PREALLOC: f"{below}: a wait for pages on decode ends under its own name.",
        INFLIGHT: proposal.reason,
        QUEUE: f"As {inflight}: a prompt that waits because decode is full must not fail before decode.",
        IDLE: f"At least 1.5 times {inflight}: no request counts as silent while its transfer may finish.",
        TOTAL: "4 times the router's idle timeout: a silent request is named as silent, not as too long.",
    }


def histogram(values: Sequence[float], value: float | None, width: int = 40) -> list[str]:
    """Lines of a terminal histogram over decades of dwell, the proposed value marked."""
    edges = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, math.inf]
    counts = [0] * len(edges)
    for v in values:
        counts[next(i for i, edge in enumerate(edges) if v <= edge)] += 1
    top = max(counts) if values else 0
    last = max((i for i, c in enumerate(counts) if c), default=-1)
    marked = next((i for i, edge in enumerate(edges) if value is not None and value <= edge), -1)
    lines = []
    for i in range(max(last, marked) + 1):
        label = f"<= {edges[i]:g} s" if edges[i] != math.inf else "more"
        bar = "#" * max(1 if counts[i] else 0, round(width * counts[i] / top) if top else 0)
        mark = f"  <- {value:g} s proposed" if i == marked else ""
        lines.append(f"{label:>9} {counts[i]:6d} {bar}{mark}")
    return lines
