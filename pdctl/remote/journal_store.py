"""The journal's database: SQLite beside the fleet file, shared by all pdctl processes of this machine."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdctl.errors import ConfigError

SCHEMA = 1
# How long a write waits for another process's write, seconds.
BUSY = 15.0

_TABLES = """
CREATE TABLE runs (id TEXT PRIMARY KEY, command TEXT, again TEXT, inputs TEXT, resumes TEXT, owner TEXT,
  host TEXT, machine TEXT, pid INTEGER, start INTEGER, started REAL, state TEXT, seconds REAL, error TEXT);
CREATE TABLE steps (run TEXT, seq INTEGER, id TEXT, host TEXT, what TEXT, state TEXT, at REAL, seconds REAL,
  detail TEXT, PRIMARY KEY (run, seq));
CREATE TABLE commands (run TEXT, seq INTEGER, step INTEGER, host TEXT, command TEXT, rc INTEGER, at REAL,
  seconds REAL, bytes INTEGER, times INTEGER, PRIMARY KEY (run, seq));
CREATE TABLE notes (run TEXT, seq INTEGER, at REAL, what TEXT, data TEXT, PRIMARY KEY (run, seq));
CREATE INDEX by_start ON runs (started);
"""


class Store:
    """ConfigError when the file cannot be used. One connection, shared by the threads of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = _open(path)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from None

    def write(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Committed when this returns: it survives this process's death."""
        self._run(sql, values)

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        return [dict(row) for row in self._run(sql, values)]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _run(self, sql: str, values: Sequence[Any]) -> list[sqlite3.Row]:
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> ConfigError:
        reason = str(error)
        if isinstance(error, OSError):
            reason = ": ".join(str(word) for word in (error.filename, error.strerror) if word)
        aside = self._path.is_file() and os.access(self._path.parent, os.W_OK)
        hint = "Move it aside to begin a new journal." if aside else ""
        return ConfigError("journal", f"The journal {self._path} cannot be used: {reason}.", hint)


def _open(path: Path) -> sqlite3.Connection:
    if path.exists() and not os.access(path.parent, os.W_OK):
        return _readable(path)
    # The folder is what is locked: closing a second descriptor of the file itself would drop SQLite's locks.
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > SCHEMA:
            raise sqlite3.DatabaseError(f"a newer pdctl wrote it (schema {found})")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if found == 0:
            connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
        return connection
    finally:
        os.close(folder)


def _readable(path: Path) -> sqlite3.Connection:
    """In a folder that can only be read, where SQLite could not make the files that it shares with others."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection
