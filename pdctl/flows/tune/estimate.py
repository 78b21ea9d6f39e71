"""What a sample of dwells says of the rare long ones; pure.

The claim is distribution-free. Of n independent transfers, k dwelt longer than v: then with the confidence
C the share of all transfers that dwell longer than v is below the p at which seeing k or fewer has the
probability 1 - C (Clopper and Pearson's one-sided bound; for k = 0 it is 1 - (1 - C) ** (1 / n), Wilks'
bound for the largest value). It assumes that transfers are independent and that the fleet stays as it was
while it was measured, and nothing of the shape of the distribution. `alike` tests the first.

A generalised Pareto tail is fitted beside it by probability-weighted moments (Hosking and Wallis, 1987). It
assumes that the tail goes on in its shape beyond what was seen, so that it decides nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
# A tail is fitted over this quantile, and not to fewer values above it.
THRESHOLD, LEAST = 0.9, 20


def upper(n: int, k: int) -> float:
    """The bound on the rate of what was seen `k` times in `n`; 1.0 where that bounds nothing."""
    if n <= 0 or k >= n:
        return 1.0
    if k == 0:
        return float(1.0 - (1.0 - CONFIDENCE) ** (1.0 / n))
    low, high = k / n, 1.0
    for _ in range(60):
        p = (low + high) / 2.0
        low, high = (p, high) if _at_most(n, k, p) > 1.0 - CONFIDENCE else (low, p)
    return high


def _at_most(n: int, k: int, p: float) -> float:
    """P(X <= k) for X binomial in n and p."""
    if p >= 1.0:
        return 0.0
    term = n * math.log1p(-p)
    total = math.exp(term)
    for i in range(1, k + 1):
        term += math.log((n - i + 1) / i) + math.log(p) - math.log1p(-p)
        total += math.exp(term)
    return min(1.0, total)


def needed(target: float) -> int:
    """The fewest transfers, none of them longer, that bear a rate below `target` out."""
    return math.ceil(math.log(1.0 - CONFIDENCE) / math.log1p(-target))


def smallest(values: Sequence[float], target: float) -> tuple[float, float] | None:
    """(v, bound): the least value seen that bounds the rate of longer ones below `target`, if any does."""
    ordered = sorted(values, reverse=True)
    best: tuple[float, float] | None = None
    for k, value in enumerate(ordered):
        bound = upper(len(ordered), k)
        if bound >= target:
            break
        best = (value, bound)
    return best


def alike(series: Sequence[float]) -> float:
    """Spearman's rank correlation of each value and the next one; 0.0 for fewer than ten."""
    if len(series) < 10:
        return 0.0
    ranks = _ranks(series)
    mean = (len(ranks) - 1) / 2.0
    spread = sum((r - mean) ** 2 for r in ranks)
    if spread == 0.0:
        return 0.0
    return sum((a - mean) * (b - mean) for a, b in itertools.pairwise(ranks)) / spread


def _ranks(series: Sequence[float]) -> list[float]:
    """Equal values share the mean of their places."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(series)):
        places.setdefault(value, []).append(place)
    return [sum(places[v]) / len(places[v]) for v in series]


@dataclass(frozen=True)
class Tail:
    """P(dwell > v) is `share` * (1 + shape * (v - threshold) / scale) ** (-1 / shape) above `threshold`."""

    threshold: float
    share: float
    shape: float
    scale: float

    def beyond(self, value: float) -> float:
        over = (value - self.threshold) / self.scale
        if abs(self.shape) < 1e-9:
            return self.share * math.exp(-over)
        base = 1.0 + self.shape * over
        return self.share * base ** (-1.0 / self.shape) if base > 0 else 0.0


def fitted(values: Sequence[float]) -> Tail | None:
    """None for too few values over the threshold, and where they do not vary."""
    ordered = sorted(values)
    threshold = ordered[int(THRESHOLD * len(ordered))] if ordered else 0.0
    over = [v - threshold for v in ordered if v > threshold]
    if len(over) < LEAST:
        return None
    n = len(over)
    a0 = sum(over) / n
    a1 = sum(x * (1.0 - (i + 0.65) / n) for i, x in enumerate(over)) / n
    if a0 - 2.0 * a1 <= 1e-12:
        return None
    k = a0 / (a0 - 2.0 * a1) - 2.0
    return Tail(threshold, n / len(ordered), -k, 2.0 * a0 * a1 / (a0 - 2.0 * a1))
