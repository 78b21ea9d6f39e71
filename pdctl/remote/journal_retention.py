"""What the journal forgets at the end of every run, so that a supervisor's years do not fill a disk."""

from __future__ import annotations

import time

from pdctl.remote.journal_store import Store

RUNS, DAYS = 2000, 400.0
# Newest runs that brought something to the fleet: whatever came after, they say what it was given and when.
DEPLOYS = 20

_OLD = "SELECT id FROM runs WHERE started < ? AND state != 'running'"
_DEPLOYS = (
    "SELECT id FROM runs WHERE command = 'deploy' OR command LIKE 'deploy %' OR command LIKE 'rollback%'"
    " ORDER BY started DESC LIMIT ?"
)


def retain(store: Store, runs: int = RUNS, days: float = DAYS) -> int:
    """Forget runs that are older than `days` or not among the newest `runs`; how many.

    The newest deploys stay, and so does the newest note of every kind.
    """
    beyond = store.read("SELECT started FROM runs ORDER BY started DESC LIMIT 1 OFFSET ?", (runs - 1,))
    before = max(time.time() - days * 86400, beyond[0]["started"] if beyond else 0.0)
    return forget(store, before, DEPLOYS)


def forget(store: Store, before: float, deploys: int = 0) -> int:
    """Forget runs that began before then, but the newest `deploys`; how many."""
    old = f"{_OLD} AND id NOT IN ({_DEPLOYS})"
    values = (before, deploys)
    count = len(store.read(old, values))
    if not count:
        return 0
    newest = "SELECT rowid FROM notes WHERE at = (SELECT MAX(at) FROM notes n WHERE n.what = notes.what)"
    for table, but in (("steps", ""), ("commands", ""), ("notes", f" AND rowid NOT IN ({newest})")):
        store.write(f"DELETE FROM {table} WHERE run IN ({old}){but}", values)
    store.write(f"DELETE FROM runs WHERE id IN ({old})", values)
    return count
