"""What pdctl did: one append-only JSONL file a run, failed and interrupted runs included."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.names import nearest
from pdctl.procs import alive, start_time


@dataclass(frozen=True)
class Run:
    """`state`: running, done, failed, interrupted or died (its process vanished without a word)."""

    id: str
    command: str
    by: str
    started: float
    state: str
    seconds: float | None = None
    error: str = ""
    steps: tuple[dict[str, Any], ...] = field(default=())


class Journal:
    """One run being written. Used as a context manager, it notes how the run ended."""

    def __init__(self, folder: Path, command: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self.id = f"{stamp}-{secrets.token_hex(2)}"
        self._path = folder / f"{self.id}.jsonl"
        self._started = time.time()
        self._end = ("done", "")
        pid = os.getpid()
        self._write(
            kind="run",
            schema=1,
            id=self.id,
            command=command,
            by=f"{getpass.getuser()}@{socket.gethostname()}",
            pid=pid,
            start=start_time(pid),
            started=self._started,
        )

    def step(self, id: str, host: str, what: str, state: str, seconds: float, detail: str = "") -> None:
        """`state`: done or failed. `detail` holds no secrets."""
        self._write(kind="step", id=id, host=host, what=what, state=state, seconds=seconds, detail=detail)

    def note(self, what: str, **more: Any) -> None:
        """A fact worth keeping, such as a measured time out of service."""
        self._write(kind="note", what=what, **more)

    def ends(self, state: str, error: str) -> None:
        """How the run ended although nothing is raised: `state` is failed or interrupted."""
        self._end = (state, error)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, message = self._end
        if error is not None:
            state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            message = error.message if isinstance(error, PdctlError) else str(error)
        self._write(kind="end", state=state, seconds=time.time() - self._started, error=message)

    def _write(self, **row: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), **row}) + "\n")


def list_runs(folder: Path) -> list[Run]:
    """Newest first, without their steps."""
    return [_read(path, steps=False) for path in sorted(folder.glob("*.jsonl"), reverse=True)]


def read_run(folder: Path, id: str) -> Run:
    path = folder / f"{id}.jsonl"
    if not path.exists():
        names = [p.stem for p in folder.glob("*.jsonl")]
        raise ConfigError("no_run", f"There is no run {id}.", nearest(id, sorted(names)[-5:]))
    return _read(path, steps=True)


def _read(path: Path, steps: bool) -> Run:
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            # The last line of a run that was killed while writing it.
            continue
        if isinstance(row, dict) and "kind" in row:
            rows.append(row)
    head: dict[str, Any] = next((r for r in rows if r["kind"] == "run"), {})
    end = next((r for r in rows if r["kind"] == "end"), None)
    here = str(head.get("by", "")).endswith(f"@{socket.gethostname()}")
    state = "running" if not here or alive(head.get("pid"), head.get("start")) else "died"
    return Run(
        id=path.stem,
        command=head.get("command", "?"),
        by=head.get("by", "?"),
        started=head.get("started", 0.0),
        state=end["state"] if end else state,
        seconds=end["seconds"] if end else None,
        error=end["error"] if end else "",
        steps=tuple(r for r in rows if r["kind"] in ("step", "note")) if steps else (),
    )
