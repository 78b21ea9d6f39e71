"""pdctl relink"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import LockWait, Yes, confirm, session
from pdctl.flows.relink import LINK, edge_of, relink
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    one: Annotated[str, typer.Argument(help="An engine.")],
    other: Annotated[str, typer.Argument(help="Its peer: a prefill and a decode of one cell.")],
    yes: Yes = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds for the two to link.")] = LINK,
    lock_wait: LockWait = 0.0,
) -> None:
    """Drop the link between a prefill and a decode and link them anew; neither is restarted."""
    s = session(ctx)
    with s.context() as context:
        prefill, decode = edge_of(context, one, other)
        confirm(
            f"Requests that {prefill.name} hands over to {decode.name} now fail or go elsewhere. Go on?", yes
        )
        seconds = relink(context, prefill, decode, wait, lock_wait)
    if s.json:
        show_json({"schema": 1, "relinked": [prefill.name, decode.name], "seconds": round(seconds, 3)})
    else:
        print(f"{prefill.name} and {decode.name} are linked, and a canary passed ({seconds:.1f} s)")
