"""The supervisor's SQLite file: opened, versioned, and put aside with a sentence when it cannot be used.

A daemon that cannot read its own file must neither lose it nor die of it again and again: the file is renamed
beside itself and a new one begun. Incidents (incidents.py) lie in the same file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

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


def connect(path: Path) -> sqlite3.Connection:
    """For one writer, whichever of its threads."""
    db = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA synchronous = NORMAL")
    return db


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """A read-only connection, rows by name; None when no file can be opened. ConfigError when it breaks
    meanwhile.
    """
    if not path.is_file():
        yield None
        return
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY)
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
