"""Reading the history: one subject's numbers over time, at most so many points, from the tier that fits."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pdctl.supervisor.history import TIERS
from pdctl.supervisor.samples import FOLD
from pdctl.supervisor.store import reading

POINTS = 240

Point = tuple[int, list[float | None]]  # Unix seconds, a value for every column asked


@dataclass(frozen=True)
class Life:
    """An engine's start, as the first look that saw it."""

    at: int
    engine: str
    incarnation: str
    release: str


class Series:
    """Answers from one file; every call opens it anew and reads one state of it. No file is no history."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def subjects(self, kind: str) -> list[str]:
        with reading(self._path) as db:
            sql = "SELECT name FROM subjects WHERE kind = ? ORDER BY name"
            return [] if db is None else [row["name"] for row in db.execute(sql, (kind,))]

    def newest(self) -> int | None:
        """Unix seconds of the newest look that is kept."""
        with reading(self._path) as db:
            if db is None:
                return None
            found = db.execute("SELECT max(at) AS at FROM looks WHERE tier = 0").fetchone()
            return None if found["at"] is None else int(found["at"])

    def read(
        self,
        kind: str,
        names: Sequence[str],
        columns: Sequence[str],
        begin: float,
        end: float,
        points: int = POINTS,
    ) -> dict[str, list[Point]]:
        """Name -> points from `begin` to `end`, oldest first. KeyError for an unknown column."""
        folds = [FOLD[column] for column in columns]
        with reading(self._path) as db:
            if db is None:
                return {name: [] for name in names}
            return {
                name: _thinned(
                    _points(db, kind, name, columns, int(begin), int(end)), folds, begin, end, points
                )
                for name in names
            }

    def lives(self, begin: float, end: float, most: int = 200) -> list[Life]:
        """Starts of engines, the newest first."""
        sql = "SELECT * FROM lives WHERE at BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?"
        with reading(self._path) as db:
            return [] if db is None else [Life(*row) for row in db.execute(sql, (int(begin), int(end), most))]


def _points(
    db: sqlite3.Connection, kind: str, name: str, columns: Sequence[str], begin: int, end: int
) -> list[Point]:
    """From the finest tier that goes back far enough; the end of a coarse one is of finer ones."""
    tiers = TIERS[: _chosen(db, begin) + 1]
    found: list[Point] = []
    after = begin
    for tier in reversed(tiers):
        part = _tier(db, tier.every, kind, name, columns, after, end)
        found += part
        after = part[-1][0] + max(1, tier.every) if part else after
    return found


def _chosen(db: sqlite3.Connection, begin: int) -> int:
    """Its index. As far back as `begin`, or as anything is known: a bucket is of looks up to its end."""
    sql = "SELECT tier, min(at) AS at FROM looks GROUP BY tier"
    oldest = {row["tier"]: row["at"] for row in db.execute(sql)}
    known = min((at + every for every, at in oldest.items()), default=begin)
    fits = (
        i for i, tier in enumerate(TIERS) if tier.every in oldest and oldest[tier.every] <= max(begin, known)
    )
    return next(fits, len(TIERS) - 1)


def _tier(
    db: sqlite3.Connection, every: int, kind: str, name: str, columns: Sequence[str], begin: int, end: int
) -> list[Point]:
    # By looks and then by key: a scan of the range would read every other subject's rows too.
    sql = (
        f"SELECT s.at, {', '.join('s.' + column for column in columns)} FROM looks l CROSS JOIN samples s"
        " ON s.tier = l.tier AND s.at = l.at"
        " AND s.subject = (SELECT id FROM subjects WHERE kind = ? AND name = ?)"
        " WHERE l.tier = ? AND l.at BETWEEN ? AND ? ORDER BY l.at"
    )
    return [(at, values) for at, *values in db.execute(sql, (kind, name, every, begin, end))]


def _thinned(found: list[Point], folds: Sequence[str], begin: float, end: float, points: int) -> list[Point]:
    """At most `points`: what falls into one slice of time becomes one, each column by its own rule."""
    if len(found) <= points:
        return found
    width = max(1.0, (end - begin) / points)
    slices: dict[int, list[Point]] = {}
    for point in found:
        slices.setdefault(int((point[0] - begin) / width), []).append(point)
    return [(part[-1][0], _folded(part, folds)) for part in slices.values()]


def _folded(part: list[Point], folds: Sequence[str]) -> list[float | None]:
    values: list[float | None] = []
    for number, fold in enumerate(folds):
        known = [v for _, row in part if (v := row[number]) is not None]
        if not known:
            values.append(None)
        else:
            values.append(max(known) if fold == "max" else round(sum(known) / len(known), 4))
    return values
