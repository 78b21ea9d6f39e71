"""pdctl abort ID"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.flows.admission import abort
from pdctl.flows.changing import beside
from pdctl.remote.journal import Call
from pdctl.render.table import show_json


def command(
    ctx: typer.Context, id: Annotated[str, typer.Argument(help="A request id, as `pdctl requests` shows it.")]
) -> None:
    """End one request: at the router, and with it on both its engines. Also while another run goes on."""
    s = session(ctx)
    with s.context() as context, beside(context, Call(f"abort {id}")):
        abort(context, id)
    if s.json:
        show_json({"schema": 1, "aborted": id})
    else:
        print(f"{id} aborted")
