"""Notices that have not arrived yet, in the supervisor's SQLite file: its successor sends what it left.

A notice is known by its `id` and its channel. Times are Unix seconds, and only say how old a notice is: one
of the future is of a clock that was set back, and as old as now.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.supervisor.store import connect

KEPT = 200  # notices that wait, the newest
OLDEST = 86400.0  # seconds; who was away for longer reads `pdctl incidents`

_TABLE = """
CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL,
  channel TEXT NOT NULL, body TEXT NOT NULL, at REAL NOT NULL, UNIQUE (id, channel));
"""


class Outbox:
    """One connection for the threads of this process. ConfigError when the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = connect(path)
            path.chmod(0o600)
            self._db.executescript(_TABLE)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from None

    def put(self, id: str, channel: str, body: dict[str, object]) -> int:
        """Keep it until `drop`; how many of the oldest had to go for it. One that is kept stays as it is."""
        row = (id, channel, json.dumps(body), time.time())
        self._run("INSERT OR IGNORE INTO outbox (id, channel, body, at) VALUES (?, ?, ?, ?)", row)
        many = "SELECT number FROM outbox ORDER BY number DESC LIMIT -1 OFFSET ?"
        return len(self._run(f"DELETE FROM outbox WHERE number IN ({many}) RETURNING id", (KEPT,)))

    def drop(self, id: str, channel: str) -> None:
        """It has arrived, or nobody waits for it."""
        self._run("DELETE FROM outbox WHERE id = ? AND channel = ?", (id, channel))

    def waiting(self) -> list[tuple[str, dict[str, object], float]]:
        """(channel, body, age in seconds), the oldest first."""
        rows = self._run("SELECT channel, body, at FROM outbox ORDER BY number", ())
        now = time.time()
        return [(channel, json.loads(body), max(0.0, now - at)) for channel, body, at in rows]

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._db.close()

    def _run(self, sql: str, values: tuple[object, ...]) -> list[tuple[str, str, float]]:
        try:
            with self._lock:
                return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> ConfigError:
        return ConfigError("outbox", f"The supervisor's file {self._path} cannot be used: {error}.")
