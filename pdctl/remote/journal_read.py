"""Runs as they are read back: `pdctl history` and `pdctl resume RUN`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pdctl.errors import ConfigError
from pdctl.fleet.names import nearest
from pdctl.remote.journal_retention import forget
from pdctl.remote.journal_store import Store
from pdctl.remote.operator import gone, me

UNFINISHED = ("failed", "interrupted", "died")


@dataclass(frozen=True)
class Ran:
    """One command, or `times` of it in a row; `seconds` and `bytes` are of all of them together."""

    host: str
    command: str
    rc: int | None
    at: float
    seconds: float
    bytes: int
    times: int


@dataclass(frozen=True)
class Done:
    """`state`: running, done, failed, interrupted or died. `seconds` is None when it never ended."""

    id: str
    host: str
    what: str
    state: str
    at: float
    seconds: float | None
    detail: str
    commands: tuple[Ran, ...]


@dataclass(frozen=True)
class Note:
    at: float
    what: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """`state` as in Done; died is a process that vanished without a word. `again` are the words that run it
    once more. `commands` belong to no step: looks before the first one."""

    id: str
    command: str
    again: tuple[str, ...]
    inputs: dict[str, str]
    resumes: str
    by: str
    host: str
    pid: int
    started: float
    state: str
    seconds: float | None
    error: str
    steps: tuple[Done, ...] = ()
    commands: tuple[Ran, ...] = ()
    notes: tuple[Note, ...] = ()
    resumed_by: tuple[str, ...] = ()


def list_runs(path: Path, last: int = 1000) -> list[Run]:
    """Newest first, without their steps."""
    if not path.exists():
        return []
    store = Store(path)
    try:
        return [_run(row) for row in store.read("SELECT * FROM runs ORDER BY started DESC LIMIT ?", (last,))]
    finally:
        store.close()


def read_run(path: Path, id: str) -> Run:
    """One run with everything; ConfigError with the nearest name."""
    store = Store(path) if path.exists() else None
    try:
        rows = store.read("SELECT * FROM runs WHERE id = ?", (id,)) if store else []
        if store is None or not rows:
            names = [r["id"] for r in store.read("SELECT id FROM runs ORDER BY started")] if store else []
            raise ConfigError("no_run", f"There is no run {id}.", nearest(id, names[-5:]))
        return _whole(store, _run(rows[0]))
    finally:
        if store:
            store.close()


def last_note(path: Path, what: str) -> dict[str, Any]:
    """The newest note of that name in any run; empty when there is none."""
    if not path.exists():
        return {}
    store = Store(path)
    try:
        rows = store.read("SELECT data FROM notes WHERE what = ? ORDER BY at DESC LIMIT 1", (what,))
        return dict(json.loads(rows[0]["data"])) if rows else {}
    finally:
        store.close()


def noted(path: Path, what: str) -> list[tuple[str, dict[str, Any]]]:
    """(command of its run, data) of every note of that name, newest first."""
    if not path.exists():
        return []
    store = Store(path)
    sql = "SELECT command, data FROM notes JOIN runs ON runs.id = notes.run WHERE what = ? ORDER BY at DESC"
    try:
        return [(row["command"], dict(json.loads(row["data"]))) for row in store.read(sql, (what,))]
    finally:
        store.close()


def prune_runs(path: Path, days: float) -> int:
    """Forget runs that began longer ago; how many."""
    if not path.exists():
        return 0
    store = Store(path)
    try:
        return forget(store, time.time() - days * 86400)
    finally:
        store.close()


def _whole(store: Store, run: Run) -> Run:
    ran: dict[int | None, list[Ran]] = {}
    for row in store.read("SELECT * FROM commands WHERE run = ? ORDER BY seq", (run.id,)):
        step = row.pop("step")
        ran.setdefault(step, []).append(Ran(**{k: row[k] for k in Ran.__dataclass_fields__}))
    steps = []
    for row in store.read("SELECT * FROM steps WHERE run = ? ORDER BY seq", (run.id,)):
        state = run.state if row["state"] == "running" else row["state"]
        keys = ("id", "host", "what", "at", "seconds", "detail")
        steps.append(Done(**{k: row[k] for k in keys}, state=state, commands=tuple(ran.pop(row["seq"], ()))))
    notes = store.read("SELECT at, what, data FROM notes WHERE run = ? ORDER BY seq", (run.id,))
    later = store.read("SELECT id FROM runs WHERE resumes = ? ORDER BY started", (run.id,))
    return replace(
        run,
        steps=tuple(steps),
        commands=tuple(c for rest in ran.values() for c in rest),
        notes=tuple(Note(n["at"], n["what"], json.loads(n["data"])) for n in notes),
        resumed_by=tuple(r["id"] for r in later),
    )


def _run(row: dict[str, Any]) -> Run:
    state = row["state"]
    if state == "running" and _vanished(row):
        state = "died"
    same = ("id", "command", "resumes", "host", "pid", "started", "seconds", "error")
    return Run(
        **{k: row[k] for k in same},
        again=tuple(json.loads(row["again"])),
        inputs=json.loads(row["inputs"]),
        by=f"{row['owner']}@{row['host']}",
        state=state,
    )


def _vanished(row: dict[str, Any]) -> bool:
    """Its process is gone, or the machine of that name has been started anew since."""
    found = gone(row["machine"], row["pid"], row["start"])
    if found is not None:
        return found
    here, there = me(), str(row["machine"])
    rebooted = bool(there and here.machine) and there.split()[0] != here.machine.split()[0]
    return row["host"] == here.host and rebooted
