"""pdctl down"""

from __future__ import annotations

import typer

from pdctl.cli.session import Yes, confirm, session
from pdctl.flows.changing import changing
from pdctl.flows.down import down
from pdctl.remote.journal import Call
from pdctl.render.table import show_json


def command(ctx: typer.Context, yes: Yes = False) -> None:
    """Stop the router, then every engine; prove that nothing runs and every port is free."""
    s = session(ctx)
    with s.context() as context, changing(context, Call("down", ("down", "--yes"))) as journal:
        result = down(context, lambda question: confirm(question, yes))
        journal.note("stopped", units=list(result.stopped))
    if s.json:
        show_json({"schema": 1, "stopped": list(result.stopped), "idle": list(result.idle)})
    elif result.stopped:
        print(f"stopped {', '.join(result.stopped)}; every port is free")
    else:
        print("nothing was running; every port is free")
