"""pdctl down"""

from __future__ import annotations

import typer

from pdctl.cli.session import session
from pdctl.flows.down import down
from pdctl.remote.journal import Journal
from pdctl.remote.lock import fleet_lock
from pdctl.render.table import show_json


def command(ctx: typer.Context) -> None:
    """Stop the router, then every engine; prove that nothing runs and every port is free."""
    s = session(ctx)
    with s.context() as context:
        paths = context.fleet.paths
        with fleet_lock(paths.lock, "pdctl down", context.say), Journal(paths.journal, "down") as journal:
            result = down(context)
            journal.note("stopped", units=list(result.stopped))
    if s.json:
        show_json({"schema": 1, "stopped": list(result.stopped), "idle": list(result.idle)})
    elif result.stopped:
        print(f"stopped {', '.join(result.stopped)}; every port is free")
    else:
        print("nothing was running; every port is free")
