"""pdctl history"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.remote.journal import Run, list_runs, read_run
from pdctl.render.table import show_json, show_table


def command(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(help="One run with all its steps.")] = None,
    lines: Annotated[int, typer.Option("-n", min=1, help="How many of the newest runs.")] = 20,
) -> None:
    """Earlier runs that changed the fleet, failed and interrupted ones included."""
    s = session(ctx)
    folder = s.fleet().paths.journal
    runs = [read_run(folder, run)] if run else list_runs(folder)[:lines]
    if s.json:
        show_json({"schema": 1, "runs": [asdict(r) for r in runs]})
    elif not runs:
        print("No run has changed this fleet yet.")
    else:
        show_table(("run", "command", "by", "started", "state", "took", "error"), [_row(r) for r in runs])
    if run and not s.json:
        steps = [
            (r.get("host"), r["what"], r.get("state"), _took(r.get("seconds")), r.get("detail"))
            for r in runs[0].steps
        ]
        show_table(("host", "step", "state", "took", "detail"), steps)


def _row(r: Run) -> tuple[object, ...]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(r.started))
    return (r.id, r.command, r.by, started, r.state, _took(r.seconds), r.error or None)


def _took(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"
