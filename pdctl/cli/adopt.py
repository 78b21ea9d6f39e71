"""pdctl adopt"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.flows.adopt import Asked, run
from pdctl.render.adopt import document, show
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A serve script, a unit file, pid:NUMBER or unit:NAME; with several hosts NAME=SOURCE.",
        ),
    ],
    ssh: Annotated[
        list[str] | None,
        typer.Option(metavar="SSH[=ADDRESS]", help="The sources are on this host; repeatable."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="What the fleet file calls the host.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the fleet file, its profile and secrets.")] = Path(
        "."
    ),
    name: Annotated[str | None, typer.Option(help="The fleet's name; else the first source's.")] = None,
    role: Annotated[
        str | None, typer.Option(help="prefill, decode or both, where the flags do not tell.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="What a script takes from outside or computes."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A variable that is not set there.")
    ] = None,
    sourced: Annotated[
        list[str] | None,
        typer.Option(metavar="[PATH=]FILE", help="A file that a source reads, where it lies here."),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Show how every line was read.")] = False,
) -> Exit:
    """Write a fleet file and a profile that start what is started today; nothing of it is executed.

    Exit 3 when something was assumed or not understood: it is listed with file and line.
    """
    if role not in (None, "prefill", "decode", "both"):
        raise ConfigError("bad_role", f"--role {role}: a role is prefill, decode or both.")
    s = session(ctx)
    asked = Asked(sources, ssh or [], host, out, name, role, given or [], unset or [], sourced or [])
    adopted = run(asked)
    if s.json:
        show_json(document(adopted))
    else:
        show(adopted, lines)
    return Exit.OK if adopted.exact else Exit.FINDINGS
