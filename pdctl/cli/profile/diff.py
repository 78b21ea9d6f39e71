"""pdctl profile diff"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.flows.compare.differences import compare
from pdctl.render.profile import show_comparison
from pdctl.render.table import show_json

Operand = Annotated[
    str,
    typer.Argument(help="A profile, release:ID, release:current, running or running:UNIT."),
]


def command(ctx: typer.Context, one: Operand, other: Operand) -> None:
    """Values that differ between two of: a profile, what a deployment recorded, what runs.

    Changes nothing. Secrets are compared by digest and shown as ***. A deployment goes by its own id
    (`pdctl rollback --list`) or its release's.
    """
    s = session(ctx)
    with s.context() as context:
        found = compare(context, one, other)
    if s.json:
        show_json({"schema": 1} | found.document())
    else:
        show_comparison(found)
