"""Incidents and actions: what was wrong, since when, what was done about it, where the evidence lies.

Two tables of the supervisor's SQLite file beside the fleet file. The daemon alone writes, and whatever it
wrote survives its death; pages and verbs read. Times are Unix seconds, for people: no duration is made of
them.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdctl.supervisor.store import Rows

KEPT = 1000  # closed incidents, the newest
MOMENTS = 200  # of one incident's timeline: the first ones and the newest
ACTS = 200  # of one incident, the newest

_TABLES = """
CREATE TABLE IF NOT EXISTS incidents (id INTEGER PRIMARY KEY AUTOINCREMENT, opened REAL NOT NULL, closed REAL,
  cell TEXT NOT NULL, subject TEXT NOT NULL, codes TEXT NOT NULL, state TEXT NOT NULL, summary TEXT NOT NULL,
  timeline TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS actions (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, incident INTEGER,
  action TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS incidents_open ON incidents (closed);
CREATE INDEX IF NOT EXISTS actions_of ON actions (incident);
"""


@dataclass(frozen=True)
class Moment:
    """One line of an incident's timeline. `what`: opened, state, finding, action, note, closed."""

    at: float
    what: str
    text: str


@dataclass(frozen=True)
class Incident:
    """`subject` is a cell, an engine or the router; `cell` is "" for what belongs to none. `codes` are the
    findings seen in it, the newest leader first. `state` is one of states.State; `closed` None while open.
    `evidence` is the newest bundle kept for it, "" for none.
    """

    id: int
    opened: float
    closed: float | None
    cell: str
    subject: str
    codes: tuple[str, ...]
    state: str
    summary: str
    timeline: tuple[Moment, ...]
    evidence: str

    @property
    def open(self) -> bool:
        return self.closed is None

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "codes": list(self.codes), "timeline": [asdict(m) for m in self.timeline]}


@dataclass(frozen=True)
class Action:
    """One act. `outcome`: running, done, failed, refused (nothing was done, `detail` says why), dry-run, or
    cut-off (the supervisor died meanwhile)."""

    id: int
    at: float
    incident: int | None
    action: str
    target: str
    outcome: str
    detail: str


class Incidents:
    """ConfigError when the file cannot be used. With `read_only` nothing is made: a file that is absent has
    no incidents.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._rows = Rows(path, _TABLES, "actions", read_only)

    # writing

    def begin(
        self, cell: str, subject: str, codes: Iterable[str], state: str, summary: str, at: float | None = None
    ) -> int:
        """A new open incident; its id."""
        at = time.time() if at is None else at
        timeline = [asdict(Moment(at, "opened", summary))]
        row = (at, cell, subject, json.dumps(list(codes)), state, summary, json.dumps(timeline), "")
        columns = "opened, cell, subject, codes, state, summary, timeline, evidence"
        found = self._rows.run(
            f"INSERT INTO incidents ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id", row
        )
        return int(found[0]["id"])

    def change(
        self,
        id: int,
        moment: Moment | None = None,
        *,
        codes: Iterable[str] = (),
        state: str = "",
        summary: str = "",
        evidence: str = "",
    ) -> None:
        """What is given replaces what was there; `codes` come in front of those seen before."""
        now = self.one(id)
        if now is None:
            return
        merged = list(dict.fromkeys((*codes, *now.codes)))
        moments = [*now.timeline, *([moment] if moment else [])]
        if len(moments) > MOMENTS:
            moments = [*moments[: MOMENTS // 2], *moments[-MOMENTS // 2 :]]
        self._rows.run(
            "UPDATE incidents SET codes = ?, state = ?, summary = ?, timeline = ?, evidence = ? WHERE id = ?",
            (
                json.dumps(merged),
                state or now.state,
                summary or now.summary,
                json.dumps([asdict(m) for m in moments]),
                evidence or now.evidence,
                id,
            ),
        )

    def close(self, id: int, state: str, text: str, at: float | None = None) -> None:
        at = time.time() if at is None else at
        self.change(id, Moment(at, "closed", text), state=state)
        self._rows.run("UPDATE incidents SET closed = ? WHERE id = ?", (at, id))
        self._prune()

    def act(
        self, incident: int | None, action: str, target: str, outcome: str, detail: str = "", at: float = 0.0
    ) -> int:
        """An action begun, or one that was refused; its id."""
        columns = "at, incident, action, target, outcome, detail"
        row = (at or time.time(), incident, action, target, outcome, detail)
        found = self._rows.run(f"INSERT INTO actions ({columns}) VALUES (?, ?, ?, ?, ?, ?) RETURNING id", row)
        older = "SELECT id FROM actions WHERE incident = ? ORDER BY id DESC LIMIT -1 OFFSET ?"
        self._rows.run(f"DELETE FROM actions WHERE id IN ({older})", (incident, ACTS))
        return int(found[0]["id"])

    def ended(self, action: int, outcome: str, detail: str) -> None:
        self._rows.run("UPDATE actions SET outcome = ?, detail = ? WHERE id = ?", (outcome, detail, action))

    # reading

    def recent(self, last: int = 100, open_only: bool = False) -> list[Incident]:
        """Newest first, open ones before closed ones."""
        which = "WHERE closed IS NULL" if open_only else ""
        order = "ORDER BY closed IS NOT NULL, id DESC LIMIT ?"
        return [_incident(row) for row in self._rows.run(f"SELECT * FROM incidents {which} {order}", (last,))]

    def one(self, id: int) -> Incident | None:
        return next(map(_incident, self._rows.run("SELECT * FROM incidents WHERE id = ?", (id,))), None)

    def actions(self, incident: int | None = None, last: int = 100) -> list[Action]:
        """The newest: of one incident in their order, of all the newest first."""
        if incident is not None:
            newest = "SELECT * FROM actions WHERE incident = ? ORDER BY id DESC LIMIT ?"
            rows = self._rows.run(f"SELECT * FROM ({newest}) ORDER BY id", (incident, last))
        else:
            rows = self._rows.run("SELECT * FROM actions ORDER BY id DESC LIMIT ?", (last,))
        return [Action(**{k: row[k] for k in Action.__dataclass_fields__}) for row in rows]

    def close_file(self) -> None:
        self._rows.close()

    def _prune(self) -> None:
        old = "SELECT id FROM incidents WHERE closed IS NOT NULL ORDER BY id DESC LIMIT -1 OFFSET ?"
        self._rows.run(f"DELETE FROM actions WHERE incident IN ({old})", (KEPT,))
        self._rows.run(f"DELETE FROM incidents WHERE id IN ({old})", (KEPT,))
        newest = "SELECT id FROM actions WHERE incident IS NULL ORDER BY id DESC LIMIT ?"
        self._rows.run(f"DELETE FROM actions WHERE incident IS NULL AND id NOT IN ({newest})", (KEPT,))


def _incident(row: sqlite3.Row) -> Incident:
    kept = {k: row[k] for k in Incident.__dataclass_fields__ if k not in ("codes", "timeline")}
    moments = tuple(Moment(**m) for m in json.loads(row["timeline"]))
    return Incident(**kept, codes=tuple(json.loads(row["codes"])), timeline=moments)
