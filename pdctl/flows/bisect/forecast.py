"""What a search will take, before anything is changed: if one value is to blame, and if two are together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

from pdctl.flows.bisect.search import Mix, Rules, announced, announced_for_two, walk

Restarts = Callable[[Mix | None, Mix | None], int]
# With more values than this a bound is told for two of them: to play every pair takes seconds.
PLAYED = 20


@dataclass(frozen=True)
class Most:
    """The most different mixes and restarts, the way back to the old values counted."""

    tests: int
    restarts: int


@dataclass(frozen=True)
class Forecast:
    """Each value in turn taken as the one to blame, and BAD as failing every time. `tests` (different mixes),
    `runs` (of the check) and `restarts` are the most that any of them needs, `mean_restarts` their mean; the
    way back to the old values is counted. `two` is for two values that fail only together, None where one
    differs. `restart_s` is what the last co-restart took, None if unknown."""

    tests: int
    runs: int
    restarts: int
    mean_restarts: float
    two: Most | None = None
    restart_s: float | None = None

    @property
    def seconds(self) -> float | None:
        """What the restarts take; the check's own time comes on top."""
        return None if self.restart_s is None else self.restarts * self.restart_s


def forecast(n: int, restarts: Restarts, rules: Rules, restart_s: float | None = None) -> Forecast:
    """`restarts(before, after)` is what it takes to come from one mix to another; None is how the fleet
    is."""
    asks = cache(restarts)
    took, runs = [], []
    for culprit in range(n):
        asked = _played(n, frozenset({culprit}), rules)
        took.append(_restarts(asked, asks))
        runs.append(len(asked))
    two = _for_two(n, asks, rules) if n > 1 else None
    return Forecast(announced(n), max(runs), max(took), sum(took) / n, two, restart_s)


def _for_two(n: int, restarts: Restarts, rules: Rules) -> Most:
    tests = announced_for_two(n)
    if n > PLAYED:
        # No step takes more than the one from GOOD to BAD, and there is one more, to the old values.
        return Most(tests, (tests + 1) * restarts(frozenset(), frozenset(range(n))))
    # Each mix once: where BAD fails every time it is not come back to.
    steady = Rules(steady=True, live=rules.live)
    asked = (_played(n, frozenset(pair), steady) for pair in combinations(range(n), 2))
    return Most(tests, max(_restarts(mixes, restarts) for mixes in asked))


def _played(n: int, culprits: Mix, rules: Rules) -> list[Mix]:
    return walk(n, culprits.issubset, rules)


def _restarts(asked: list[Mix], restarts: Restarts) -> int:
    path: list[Mix | None] = [None, *asked, None]
    return sum(restarts(a, b) for a, b in pairwise(path))
