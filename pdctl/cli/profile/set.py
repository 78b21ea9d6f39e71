"""pdctl profile set"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.exits import Exit
from pdctl.fleet.edit import set_value
from pdctl.flows.changing import changing
from pdctl.flows.live import check_live, set_live
from pdctl.remote.journal import Call
from pdctl.remote.operator import me
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    profile: Annotated[str, typer.Argument(help="The profile to change.")],
    words: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="One word.")],
    reason: Annotated[str, typer.Option(help="Why; kept with the value.")],
    live: Annotated[bool, typer.Option("--live", help="Also set it on running engines now.")] = False,
    side: Annotated[str | None, typer.Option(help="Who reads a variable that pdctl does not know.")] = None,
) -> Exit:
    """Change one value; it counts as unverified until its watchdog was seen to fire."""
    s = session(ctx)
    fleet = s.fleet()
    env, equals, value = words[0].partition("=")
    if not equals or len(words) > 1:
        said = " ".join(words)
        raise typer.BadParameter(f"{said} is not one word NAME=VALUE.", param_hint="NAME=VALUE")
    by = me().name
    results: dict[str, str] = {}
    if live:
        check_live(env)
        with (
            s.context() as context,
            changing(context, Call(f"profile set {profile} {env} --live")) as journal,
        ):
            change = set_value(fleet.paths.profiles, profile, env, value, reason, by, side)
            results = set_live(context, profile, env)
            if any(results.values()):
                journal.ends("failed", f"not set on {', '.join(n for n, why in results.items() if why)}")
    else:
        change = set_value(fleet.paths.profiles, profile, env, value, reason, by, side)
    failed = {name: why for name, why in results.items() if why}
    if s.json:
        document = {
            "env": env,
            "old": change.old,
            "new": change.new,
            "file": str(change.file),
            "live": results,
        }
        show_json({"schema": 1, "profile": profile} | document)
    else:
        print(
            f"{profile}: {env}: {change.old or '(unset)'} -> {change.new}, not verified yet ({change.file})"
        )
        for name, why in results.items():
            print(f"{name}: {why or 'set'}")
        if not live:
            print("Running engines keep the old value until `pdctl deploy`; --live sets it at once.")
    return Exit.PARTIAL if failed else Exit.OK
