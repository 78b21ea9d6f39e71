"""pdctl profile: one sub-verb per file, named here."""

from __future__ import annotations

import typer

from pdctl.cli.profile import bisect, check, diff, list, set, show

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Env profiles: named values, each with its reason and whether its watchdog was seen to fire.",
)
app.command("list")(list.command)
app.command("show")(show.command)
app.command("check")(check.command)
app.command("diff")(diff.command)
app.command("set")(set.command)
app.command("bisect")(bisect.command)
