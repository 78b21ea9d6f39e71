"""The last minutes of engines, in slots of time: a running supervisor's history, else one's own looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pdctl.errors import PdctlError
from pdctl.supervisor.observation import Observation
from pdctl.supervisor.samples import FOLD, Rates, Row, Subject, rows
from pdctl.supervisor.series import Point, Series

SPAN = 300.0
# A history whose newest look is older than this is of a supervisor that runs no more.
FRESH = 30.0
NOTHING = Row()

Slots = list[float | None]  # oldest first; None where nothing is known


class Trends:
    """`file` is the supervisor's, whether there is one or not. `add` takes looks of one's own."""

    def __init__(self, file: Path, span: float = SPAN) -> None:
        self._series, self._span = Series(file), span
        self._rates = Rates()
        self._looks: deque[tuple[float, Mapping[Subject, Row]]] = deque()

    def add(self, look: Observation) -> None:
        self._looks.append((look.at, rows(look, self._rates)))
        while self._looks[0][0] < look.at - self._span:
            self._looks.popleft()

    def supervised(self, now: float) -> bool:
        """Whether a supervisor writes the history at this time."""
        try:
            newest = self._series.newest()
        except PdctlError:
            return False
        return newest is not None and abs(now - newest) <= FRESH

    def lines(
        self, kind: str, names: Sequence[str], columns: Sequence[str], slots: int, now: float
    ) -> dict[tuple[str, str], Slots]:
        """(name, column) -> `slots` values that end with `now` (Unix seconds)."""
        begin = now - self._span
        points = self._own(kind, names, columns)
        if self.supervised(now):
            with suppress(PdctlError):
                points = self._series.read(kind, names, columns, begin, now, points=10_000)
        width = self._span / slots
        return {
            (name, column): slotted(
                ((at, values[i]) for at, values in points[name]), column, begin, width, slots
            )
            for name in names
            for i, column in enumerate(columns)
        }

    def _own(self, kind: str, names: Sequence[str], columns: Sequence[str]) -> dict[str, list[Point]]:
        return {
            name: [
                (int(at), [getattr(found.get((kind, name), NOTHING), column) for column in columns])
                for at, found in self._looks
            ]
            for name in names
        }


def slotted(
    points: Iterable[tuple[float, float | None]], column: str, begin: float, width: float, slots: int
) -> Slots:
    """Values by slot, folded by the column's own rule; what is outside is left out."""
    found: list[list[float]] = [[] for _ in range(slots)]
    for at, value in points:
        if value is not None and begin <= at <= begin + width * slots:
            found[min(int((at - begin) / width), slots - 1)].append(value)
    fold = max if FOLD[column] == "max" else _mean
    return [fold(values) if values else None for values in found]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
