"""What the keeper writes down about its unit: one JSON file, replaced whole at every change."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pdctl import procs
from pdctl.units.spec import NEVER_STARTED, UnitStatus


@dataclass
class Record:
    """`child_*` are of the process that runs, None once its end is written down; start times are ticks since
    boot. `wanted` is False for a unit that had failed when it was stopped."""

    unit: str
    mark: str
    state: str = "activating"
    reason: str = ""
    status: str = ""
    keeper_pid: int | None = None
    keeper_start: int | None = None
    child_pid: int | None = None
    child_start: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    exit_signal: int | None = None
    ended_by: str = ""
    since: float = 0.0
    started_at: float | None = None
    inputs: str = ""
    notify_dir: str = ""
    failures: list[float] = field(default_factory=list)
    wanted: bool = True

    @property
    def kept(self) -> bool:
        return procs.alive(self.keeper_pid, self.keeper_start)

    @property
    def child_alive(self) -> bool:
        return procs.alive(self.child_pid, self.child_start)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"schema": 1, **asdict(self)}, indent=1) + "\n")
        os.replace(temporary, path)


def read_record(path: Path) -> Record | None:
    """None when the unit never ran, or its record is damaged (it is written anew at the next start)."""
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        data.pop("schema", None)
        return Record(**data)
    except (OSError, ValueError, TypeError):
        return None


def orphans(record: Record) -> list[int]:
    """What of the unit still runs, whoever looks after it."""
    if record.child_pid is None:
        return []
    return procs.session_members(record.child_pid, record.mark)


def judge(name: str, record: Record | None) -> UnitStatus:
    """The record held against the process table: a record may be older than the truth."""
    if record is None:
        return UnitStatus(name, "inactive", NEVER_STARTED)
    pid = record.child_pid if record.child_alive else None
    state, reason = record.state, record.reason
    since: float | None = record.since
    if not record.kept and state not in ("inactive", "failed"):
        left = orphans(record)
        if left:
            state, reason = "orphaned", f"its keeper is gone; {len(left)} process(es) run unsupervised"
            pid = pid or left[0]
        else:
            state, reason = "failed", "its keeper and its process are gone"
        since = None  # nobody was there to see when
    # Its end is not written down: what is recorded is of the life before it.
    unseen = record.child_pid is not None and pid is None
    return UnitStatus(
        name=name,
        state=state,
        reason=reason,
        status=record.status,
        pid=pid,
        keeper_pid=record.keeper_pid if record.kept else None,
        restarts=record.restarts,
        exit_code=None if unseen else record.exit_code,
        exit_signal=None if unseen else record.exit_signal,
        ended_by="" if unseen else record.ended_by,
        since=since,
        started_at=record.started_at if pid else None,
        started_by="" if pid is None else "supervisor" if record.restarts else "pdctl",
        wanted=record.wanted and state not in ("inactive", "deactivating"),
        inputs=record.inputs,
    )
