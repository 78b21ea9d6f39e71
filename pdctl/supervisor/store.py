"""The supervisor's SQLite file: opened, versioned, and put aside with a sentence when it cannot be used.

A daemon that cannot read its own file must neither lose it nor die of it again and again: the file is renamed
beside itself and a new one begun. Incidents and notices lie in the same file, in tables of their own (Rows).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from pdctl.errors import ConfigError

SCHEMA = 1
_ASIDE = "Restart the supervisor: it puts a damaged file aside and begins a new one."
BUSY = 10.0  # seconds that a write waits for another process's write

_TABLES = """
CREATE TABLE subjects (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (kind, name));
CREATE TABLE looks (tier INTEGER, at INTEGER, seconds REAL, PRIMARY KEY (tier, at)) WITHOUT ROWID;
CREATE TABLE samples (tier INTEGER, at INTEGER, subject INTEGER, up REAL, waiting REAL, inflight REAL,
  running REAL, oldest REAL, prefill_rate REAL, decode_rate REAL, kv REAL, quarantined REAL, failed REAL,
  PRIMARY KEY (tier, at, subject)) WITHOUT ROWID;
CREATE TABLE lives (at INTEGER, engine TEXT, incarnation TEXT, release TEXT);
"""


def prepare(path: Path) -> str:
    """Make the file usable. What was put aside for that and why, "" usually; ConfigError when its folder
    cannot be written.
    """
    said = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and (why := _unusable(path)):
            said = _put_aside(path, why)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            "supervisor_file",
            f"The supervisor's file {path} cannot be used: {error}.",
            "Its folder must be writable and its disk must have room.",
        ) from None
    return said


def connect(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    """For one writer, or with "ro" one reader, whichever of its threads."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA synchronous = NORMAL")
    return db


class Rows:
    """Tables of the file, made by `tables`, for threads of one process. ConfigError when it cannot be used.

    With `read_only` nothing is made: where the file, or `table` in it, is absent there are no rows.
    """

    def __init__(self, path: Path, tables: str, table: str, read_only: bool = False) -> None:
        self._path, self._lock = path, threading.Lock()
        self._db: sqlite3.Connection | None = None
        if read_only and not path.is_file():
            return
        try:
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            db = connect(path, "ro" if read_only else "rwc")
            db.row_factory = sqlite3.Row
            if not read_only:
                path.chmod(0o600)
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(tables)
            elif not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
                db.close()
                return
        except (sqlite3.Error, OSError) as error:
            raise self._cannot(error) from None
        self._db = db

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        if self._db is None:
            return []
        try:
            with self._lock:
                return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._cannot(error) from None

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            if self._db is not None:
                self._db.close()

    def _cannot(self, error: Exception) -> ConfigError:
        hint = "Move it aside to begin a new one." if self._path.is_file() else ""
        return ConfigError(
            "supervisor_file", f"The supervisor's file {self._path} cannot be used: {error}.", hint
        )


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """A read-only connection, rows by name; None when no file can be opened. ConfigError when it breaks
    meanwhile.
    """
    if not path.is_file():
        yield None
        return
    try:
        db = connect(path, "ro")
        db.row_factory = sqlite3.Row
        version = db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error:
        yield None
        return
    with closing(db):
        try:
            yield db if version == SCHEMA else None
        except sqlite3.Error as error:
            raise ConfigError("supervisor_file", f"{path} cannot be read: {error}.", _ASIDE) from None


def _unusable(path: Path) -> str:
    """Why SQLite or this version cannot use it; "" when they can. OperationalError when it is only busy."""
    try:
        with closing(connect(path)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA:
                return f"a newer pdctl wrote it (schema {version})"
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            return "" if found == "ok" else f"it is damaged ({found})"
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        return f"it is damaged ({error})"


def _put_aside(path: Path, why: str) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.aside-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.aside-{stamp}-{number}")
    path.rename(aside)
    # What was committed and not yet copied into the file itself lies beside it and belongs to it.
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    return f"{path} cannot be used: {why}. It was put aside as {aside.name} and a new one was begun."
