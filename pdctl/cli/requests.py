"""pdctl requests"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.flows.requests import collect_requests
from pdctl.render.requests import show_requests
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    recent: Annotated[bool, typer.Option("--recent", help="Also those that have ended.")] = False,
) -> None:
    """The router's ledger: every request with its stage, age and what its two legs do."""
    s = session(ctx)
    with s.context() as context:
        ledger = collect_requests(context)
    if s.json:
        show_json(ledger)
    else:
        show_requests(ledger, recent)
