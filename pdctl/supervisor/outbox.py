"""Notices that have not arrived yet, in the supervisor's SQLite file: its successor sends what it left.

A notice is known by its `id` and its channel. Times are Unix seconds, and only say how old a notice is: one
of the future is of a clock that was set back, and as old as now.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from pdctl.supervisor.store import Rows

KEPT = 200  # notices that wait, the newest
OLDEST = 86400.0  # seconds; who was away for longer reads `pdctl incidents`

_TABLE = """
CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL,
  channel TEXT NOT NULL, body TEXT NOT NULL, at REAL NOT NULL, UNIQUE (id, channel));
"""


class Outbox:
    """ConfigError when the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._rows = Rows(path, _TABLE, "outbox")

    def put(self, id: str, channel: str, body: dict[str, object]) -> int:
        """Keep it until `drop`; how many of the oldest had to go for it. One that is kept stays as it is."""
        row = (id, channel, json.dumps(body), time.time())
        self._rows.run("INSERT OR IGNORE INTO outbox (id, channel, body, at) VALUES (?, ?, ?, ?)", row)
        many = "SELECT number FROM outbox ORDER BY number DESC LIMIT -1 OFFSET ?"
        return len(self._rows.run(f"DELETE FROM outbox WHERE number IN ({many}) RETURNING id", (KEPT,)))

    def drop(self, id: str, channel: str) -> None:
        """It has arrived, or nobody waits for it."""
        self._rows.run("DELETE FROM outbox WHERE id = ? AND channel = ?", (id, channel))

    def waiting(self) -> list[tuple[str, dict[str, object], float]]:
        """(channel, body, age in seconds), the oldest first."""
        rows = self._rows.run("SELECT channel, body, at FROM outbox ORDER BY number")
        now = time.time()
        return [(channel, json.loads(body), max(0.0, now - at)) for channel, body, at in rows]

    def close(self) -> None:
        self._rows.close()
