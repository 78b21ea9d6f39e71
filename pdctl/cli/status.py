"""pdctl status"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.exits import Exit
from pdctl.flows.status import collect_status
from pdctl.render.status import show_status
from pdctl.render.table import show_json
from pdctl.render.watch import watch_status
from pdctl.supervisor.trend import Trends


def command(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
) -> Exit:
    """Units, engines, queues with ages, KV pages and the router's ledger. Exit 3 when not all is ready."""
    s = session(ctx)
    with s.context() as context:
        if watch and not s.json:
            watch_status(lambda: collect_status(context), Trends(context.fleet.paths.supervisor), every)
        status = collect_status(context)
        while watch:
            show_json(status.document())
            time.sleep(every)
            status = collect_status(context)
    if s.json:
        show_json(status.document())
    else:
        show_status(status)
    return Exit.OK if status.healthy else Exit.FINDINGS
