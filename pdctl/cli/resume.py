"""pdctl resume"""

from __future__ import annotations

import typer

from pdctl.cli.session import session
from pdctl.flows.admission import resume
from pdctl.remote.journal import Journal
from pdctl.remote.lock import fleet_lock
from pdctl.render.table import show_json


def command(ctx: typer.Context) -> None:
    """Open admissions again: end the router's hold, cordons, and drains that were left behind."""
    s = session(ctx)
    with s.context() as context:
        paths = context.fleet.paths
        with fleet_lock(paths.lock, "pdctl resume", context.say), Journal(paths.journal, "resume"):
            done = resume(context)
    if s.json:
        show_json({"schema": 1, "resumed": done})
        return
    for line in done or ["Nothing was held."]:
        print(line)
