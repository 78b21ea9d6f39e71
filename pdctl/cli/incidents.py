"""pdctl incidents [ID]"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.flows.deploy.supervisor_home import folder, is_elsewhere
from pdctl.render.incidents import show_incident, show_incidents
from pdctl.render.table import show_json
from pdctl.supervisor.incidents import Incidents


def command(
    ctx: typer.Context,
    id: Annotated[
        int | None, typer.Argument(min=1, help="One incident with its timeline and actions.")
    ] = None,
    lines: Annotated[int, typer.Option("-n", min=1, help="How many of the newest.")] = 20,
    open_only: Annotated[bool, typer.Option("--open", help="Those that are not over.")] = False,
) -> Exit:
    """What the supervisor found wrong, what it did about it, and where the evidence lies.

    Exit 3 while an incident is open.
    """
    s = session(ctx)
    fleet = s.fleet()
    if is_elsewhere(fleet):
        told = f"`pdctl --fleet {folder(fleet)} incidents` there tells of it"
        print(f"The supervisor runs on {fleet.control}: {told}.", file=sys.stderr)
    store = Incidents(fleet.paths.supervisor, read_only=True)
    if id is None:
        found = store.recent(lines, open_only)
    else:
        one = store.one(id)
        if one is None:
            raise ConfigError("no_incident", f"There is no incident {id}.", "`pdctl incidents` lists them.")
        found = [one]
    actions = {i.id: store.actions(i.id) for i in found}
    if s.json:
        rows = [{**i.document(), "actions": [asdict(a) for a in actions[i.id]]} for i in found]
        show_json({"schema": 1, "incidents": rows})
    elif id is not None:
        show_incident(found[0], actions[found[0].id])
    else:
        show_incidents(found, actions)
    return Exit.FINDINGS if any(i.open for i in found) else Exit.OK
