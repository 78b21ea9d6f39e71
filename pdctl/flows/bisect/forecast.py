"""What a search will take, before anything is changed: tests, runs and restarts if one value is to blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from pdctl.flows.bisect.search import Mix, Rules, announced, walk

Restarts = Callable[[Mix | None, Mix | None], int]


@dataclass(frozen=True)
class Forecast:
    """Each value in turn taken as the one to blame, and BAD as failing every time. `tests` (different mixes),
    `runs` (of the check) and `restarts` are the most that any of them needs, `mean_restarts` their mean; the
    way back to the old values is counted. `restart_s` is what the last co-restart took, None if unknown."""

    tests: int
    runs: int
    restarts: int
    mean_restarts: float
    restart_s: float | None = None

    @property
    def seconds(self) -> float | None:
        """What the restarts take; the check's own time comes on top."""
        return None if self.restart_s is None else self.restarts * self.restart_s


def forecast(n: int, restarts: Restarts, rules: Rules, restart_s: float | None = None) -> Forecast:
    """`restarts(before, after)` is what it takes to come from one mix to another; None is how the fleet
    is."""
    took, runs = [], []
    for culprit in range(n):
        asked = walk(n, partial(_has, culprit), rules)
        path: list[Mix | None] = [None, *asked, None]
        took.append(sum(restarts(a, b) for a, b in pairwise(path)))
        runs.append(len(asked))
    return Forecast(announced(n), max(runs), max(took), sum(took) / n, restart_s)


def _has(culprit: int, mix: Mix) -> bool:
    return culprit in mix
