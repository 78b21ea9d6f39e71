"""pdctl logs"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.errors import ConfigError
from pdctl.flows.logs import follow
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    unit: Annotated[str | None, typer.Argument(help="Engine or router; all of them when left out.")] = None,
    lines: Annotated[int, typer.Option("-n", min=0, help="How many of the last lines.")] = 100,
    following: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is added.")] = False,
) -> None:
    """What a unit said last; with -f what it says from now on."""
    s = session(ctx)
    with s.context() as context:
        chosen = [context.fleet.unit(unit)] if unit else list(context.fleet.units())
        if following and len(chosen) > 1:
            raise ConfigError("one_unit", "Only one unit's log can be followed.", "Name the unit.")
        if following and not s.json:
            for text in follow(context, chosen[0], lines):
                print(text, end="", flush=True)
        found = {u.name: context.units_of(u).logs(u.name, lines) for u in chosen}
        if s.json:
            show_json({"schema": 1, "logs": found})
            return
        if not any(found.values()):
            print(f"{unit or context.fleet.name} has no log: nothing of it was started yet.", file=sys.stderr)
        for name, said in found.items():
            for line in said:
                print(line if unit else f"{name}| {line}")
