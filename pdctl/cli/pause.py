"""pdctl pause"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session, span_seconds
from pdctl.exits import Exit
from pdctl.flows.supervise.pause import pause
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    span: Annotated[
        str, typer.Option("--for", metavar="TIME", help="End by itself after this: 90s, 30m, 2h, 1d.")
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Until the act that the supervisor is at has ended.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why; whoever looks is told.")] = "",
) -> Exit:
    """The supervisor does nothing by itself until `pdctl resume`. It goes on looking.

    It begins nothing once this has returned; an act under way ends as it would have.
    """
    s = session(ctx)
    seconds = span_seconds("--for", span) if span else None
    with s.context() as context:
        paused, acting = pause(context, reason.strip(), seconds, wait)
    if s.json:
        show_json(
            {"schema": 1, "by": paused.by, "reason": paused.reason, "left_s": paused.left, "acting": acting}
        )
    else:
        print(f"the supervisor is {paused.words()}")
        if acting:
            print(f"it still acts: {acting}; `pdctl pause --wait` waits for the end of that")
    return Exit.OK
