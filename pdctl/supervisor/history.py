"""History: every look's numbers for an hour, by the minute for a day, by the quarter for a month.

Bounded by counts of looks, not by the clock: a wall clock that jumps ages nothing. One transaction a look, so
a reader sees whole looks, and so does a successor of a killed supervisor.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from pdctl.supervisor.observation import Observation
from pdctl.supervisor.samples import COLUMNS, FOLD, Rates, Row, Subject, rows
from pdctl.supervisor.store import connect

ROWS = 2_000_000  # of one tier at most, about 100 MB: a thousand engines keep half as long
LIVES = 5_000  # starts of engines, the newest


@dataclass(frozen=True)
class Tier:
    """`every` is the width of its buckets, seconds; 0 for looks as they came. `keep` is how many of them."""

    every: int
    keep: int


TIERS = (Tier(0, 720), Tier(60, 1440), Tier(900, 2880))
_VALUES = ", ".join(COLUMNS)
_INSERT = (
    f"INSERT OR REPLACE INTO samples (tier, at, subject, {_VALUES}) VALUES (0, ?, ?{', ?' * len(COLUMNS)})"
)
_FOLDED = ", ".join(f"round({FOLD[name]}({name}), 4)" for name in COLUMNS)
_ROLL = (
    f"INSERT OR REPLACE INTO samples (tier, at, subject, {_VALUES}) SELECT ?, ?, subject, {_FOLDED}"
    " FROM samples WHERE tier = ? AND at >= ? AND at < ? GROUP BY subject"
)


class History:
    """The one writer. `record` raises sqlite3.Error when the file cannot be written; the caller says so and
    goes on looking.
    """

    def __init__(self, path: Path, tiers: Sequence[Tier] = TIERS) -> None:
        self._db = connect(path)
        self._tiers = tuple(tiers)
        self._rates = Rates()
        (last,) = self._db.execute("SELECT max(at) FROM looks WHERE tier = 0").fetchone()
        self._last: int | None = last
        self._load()

    def _load(self) -> None:
        """What the file knows: subjects, and the newest life of each engine."""
        known = self._db.execute("SELECT id, kind, name FROM subjects")
        self._ids: dict[Subject, int] = {(kind, name): id for id, kind, name in known}
        lives = self._db.execute("SELECT engine, incarnation FROM lives ORDER BY rowid")
        self._lives: dict[str, str] = dict(lives.fetchall())

    def record(self, look: Observation) -> None:
        at, found = int(look.at), rows(look, self._rates)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._write(at, look, found)
            for finer, tier in zip(self._tiers, self._tiers[1:], strict=False):
                self._roll(finer, tier, at)
            for tier in self._tiers:
                self._prune(tier, len(found), at)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._load()
            raise
        self._last = at

    def close(self) -> None:
        self._db.close()

    def _write(self, at: int, look: Observation, found: dict[Subject, Row]) -> None:
        self._db.execute("INSERT OR REPLACE INTO looks VALUES (0, ?, ?)", (at, round(look.seconds, 3)))
        for kind, name in found.keys() - self._ids.keys():
            # A second supervisor of this folder, standing by, may have been first.
            sql = (
                "INSERT INTO subjects (kind, name) VALUES (?, ?)"
                " ON CONFLICT (kind, name) DO UPDATE SET kind = kind RETURNING id"
            )
            self._ids[kind, name] = self._db.execute(sql, (kind, name)).fetchone()[0]
        values = [(at, self._ids[subject], *astuple(row)) for subject, row in found.items()]
        self._db.executemany(_INSERT, values)
        for engine in look.engines:
            life = engine.incarnation or (str(engine.started_at) if engine.started_at else "")
            if engine.answered and life and self._lives.get(engine.name) != life:
                self._lives[engine.name] = life
                self._db.execute(
                    "INSERT INTO lives VALUES (?, ?, ?, ?)", (at, engine.name, life, engine.release)
                )

    def _roll(self, finer: Tier, tier: Tier, at: int) -> None:
        """When a look begins a new bucket, the one that the look before was in becomes one row a subject."""
        if self._last is None or self._last // tier.every == at // tier.every:
            return
        begin = self._last // tier.every * tier.every
        span = (finer.every, begin, begin + tier.every)
        self._db.execute(_ROLL, (tier.every, begin, *span))
        self._db.execute(
            "INSERT OR REPLACE INTO looks SELECT ?, ?, max(seconds) FROM looks"
            " WHERE tier = ? AND at >= ? AND at < ? HAVING count(*)",
            (tier.every, begin, *span),
        )

    def _prune(self, tier: Tier, subjects: int, at: int) -> None:
        """The newest up to now are kept; what a clock that was ahead has dated later goes first."""
        keep = max(1, min(tier.keep, ROWS // max(1, subjects)))
        sql = "SELECT at FROM looks WHERE tier = ? ORDER BY at > ?, at DESC LIMIT -1 OFFSET ?"
        for (gone,) in self._db.execute(sql, (tier.every, at, keep)).fetchall():
            for table in ("looks", "samples"):
                self._db.execute(f"DELETE FROM {table} WHERE tier = ? AND at = ?", (tier.every, gone))
        if tier.every:
            return
        self._db.execute("DELETE FROM lives WHERE rowid <= (SELECT max(rowid) FROM lives) - ?", (LIVES,))


def unwritten(error: sqlite3.Error) -> str:
    """The sentence for a look that could not be kept."""
    return f"This look is not in the history: {error}. The supervisor goes on looking."
