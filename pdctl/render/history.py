"""Runs and audit records as tables; one run with its steps and the commands of each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from typing import Any

from pdctl.remote.journal_read import Ran, Run
from pdctl.render.table import show_table


def show_runs(runs: Sequence[Run]) -> None:
    columns = ("run", "command", "by", "started", "state", "took", "error")
    show_table(columns, [_row(r) for r in runs])


def _row(run: Run) -> tuple[object, ...]:
    took, error = _took(run.seconds), run.error or None
    return (run.id, run.command, run.by, _day(run.started), run.state, took, error)


def show_run(run: Run) -> None:
    took = f" after {_took(run.seconds)}" if run.seconds is not None else ""
    print(f"{run.id}  pdctl {run.command}  {run.state}{took}")
    print(f"by {run.by} (pid {run.pid}), {_day(run.started)}")
    if run.error:
        print(f"error: {run.error}")
    if run.resumes:
        print(f"goes on with {run.resumes}")
    if run.resumed_by:
        print(f"resumed by {', '.join(run.resumed_by)}")
    if run.commands:
        print("\nlooks that belong to no step")
        _commands(run.commands)
    for step in run.steps:
        detail = f": {step.detail}" if step.detail else ""
        print(f"\n{step.state:<11} {_took(step.seconds) or '-':>8}  {step.host}  {step.what}{detail}")
        _commands(step.commands)
    for note in run.notes:
        # What has parts of its own is in --json.
        said = ", ".join(f"{k} {v}" for k, v in note.data.items() if not isinstance(v, dict))
        if said:
            print(f"\nnote: {note.what}: {' '.join(said.split())}")


def show_audit(host: str, lines: Sequence[dict[str, Any]], bad: int) -> None:
    if not lines:
        print(f"Nothing is in the audit record of {host}.")
    else:
        keys = ("at", "by", "from", "run", "verb", "what", "result")
        show_table(keys, [[line.get(k) or None for k in keys] for line in lines])
    if bad:
        print(f"{bad} lines of it cannot be read.")


def _commands(commands: Sequence[Ran]) -> None:
    for c in commands:
        code = "no exit code" if c.rc is None else f"rc {c.rc}"
        times = f", {c.times} times" if c.times > 1 else ""
        head = f"    {c.host}  {code}, {_took(c.seconds)}, {_size(c.bytes)}{times}  "
        print(head + _cut(c.command, len(head)))


def _cut(text: str, used: int) -> str:
    """On one line, as much as the terminal takes; --json has all of it."""
    flat = " ".join(text.split())
    room = max(40, shutil.get_terminal_size((160, 24)).columns - used)
    return flat if len(flat) <= room else f"{flat[: room - 1]}…"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _took(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"


def _size(count: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
