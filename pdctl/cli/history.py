"""pdctl history"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.errors import ConfigError
from pdctl.fleet.names import nearest
from pdctl.flows.context import Context
from pdctl.remote.audit import read_audit
from pdctl.remote.journal_read import list_runs, prune_runs, read_run
from pdctl.render.history import show_audit, show_run, show_runs
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(help="One run with all its steps and commands.")] = None,
    lines: Annotated[int, typer.Option("-n", min=1, help="How many of the newest.")] = 20,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The audit record of a host: what all operators did.")
    ] = None,
    prune: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Forget runs older than this.")
    ] = None,
) -> None:
    """Earlier runs that changed the fleet, failed and interrupted ones included."""
    if sum(given is not None for given in (run, host, prune)) > 1:
        raise ConfigError("usage", "A run, --host and --prune are three different questions.", "Ask one.")
    s = session(ctx)
    if host is not None:
        with s.context() as context:
            _audit(context, host, lines, s.json)
        return
    paths = s.fleet().paths
    if prune is not None:
        count = prune_runs(paths.journal, prune)
        show_json({"schema": 1, "pruned": count}) if s.json else print(f"{count} runs forgotten")
        return
    runs = [read_run(paths.journal, run)] if run else list_runs(paths.journal, lines)
    if s.json:
        show_json({"schema": 1, "runs": [asdict(r) for r in runs]})
        return
    if run:
        show_run(runs[0])
    elif runs:
        show_runs(runs)
    else:
        print("No run has changed this fleet yet.")
    old = paths.state / "journal"
    if not run and old.is_dir():
        print(f"Runs of an earlier version of pdctl are JSON lines in {old}.")


def _audit(context: Context, host: str, lines: int, as_json: bool) -> None:
    hosts = context.fleet.hosts
    if host not in hosts:
        raise ConfigError("unknown_host", f"There is no host {host!r} in this fleet.", nearest(host, hosts))
    found, bad = read_audit(context.unrecorded(host), hosts[host], lines)
    if as_json:
        show_json({"schema": 1, "host": host, "lines": found, "unreadable": bad})
    else:
        show_audit(host, found, bad)
