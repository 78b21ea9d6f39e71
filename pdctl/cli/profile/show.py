"""pdctl profile show"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.fleet.profile import load_profile
from pdctl.render.profile import show_profile, values_document
from pdctl.render.table import show_json


def command(
    ctx: typer.Context, name: Annotated[str | None, typer.Argument(help="Default: the fleet's.")] = None
) -> None:
    """Every value with its side, reason, origin, and whether it is verified."""
    s = session(ctx)
    fleet = s.fleet()
    profile = load_profile(fleet.paths.profiles, name or fleet.spec.fleet.profile)
    if s.json:
        show_json(
            {"schema": 1, "name": profile.name, "extends": list(profile.chain[1:])} | values_document(profile)
        )
    else:
        show_profile(profile)
