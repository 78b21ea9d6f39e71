"""pdctl profile check"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.exits import Exit
from pdctl.fleet.check.run import check_profiles
from pdctl.fleet.load import load_fleet
from pdctl.flows.deployed import last_deploy, last_values
from pdctl.render.check_profile import show_findings
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One profile. Default: all that the fleet uses.")] = None,
) -> Exit:
    """Unknown names, bad values, sides that differ, deadlines out of order, evidence of another value, risks.

    Asks no host and changes nothing. What it knows of each variable is in docs/catalogue.md. Exit 3 when
    something is wrong or doubtful.
    """
    s = session(ctx)
    # A secret that is missing is one finding among the others.
    fleet = load_fleet(s.fleet_file, secrets=False)
    found = check_profiles(fleet, name, last_deploy(fleet), last_values(fleet))
    if s.json:
        show_json({"schema": 1, "profile": name, "findings": [f.document() for f in found]})
    else:
        show_findings(name or fleet.name, found)
    return Exit.FINDINGS if any(f.bad for f in found) else Exit.OK
