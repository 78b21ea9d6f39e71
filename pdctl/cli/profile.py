"""pdctl profile"""

from __future__ import annotations

import getpass
import socket
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.exits import Exit
from pdctl.fleet.edit import set_value
from pdctl.fleet.profile import load_profile, profile_names
from pdctl.flows.changing import changing
from pdctl.flows.live import check_live, set_live
from pdctl.remote.journal import Call
from pdctl.render.profile import show_diff, show_list, show_profile, values_document
from pdctl.render.table import show_json

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Env profiles: named values, each with its reason and whether its watchdog was seen to fire.",
)


@app.command("list")
def list_command(ctx: typer.Context) -> None:
    """The fleet's profiles and the units that use them."""
    s = session(ctx)
    fleet = s.fleet()
    profiles = [load_profile(fleet.paths.profiles, n) for n in profile_names(fleet.paths.profiles)]
    users = {p.name: [u.name for u in fleet.units() if u.profile == p.name] for p in profiles}
    if s.json:
        rows = [{"name": p.name, "description": p.description, "used_by": users[p.name]} for p in profiles]
        show_json({"schema": 1, "profiles": rows})
    else:
        show_list(profiles, users)


@app.command("show")
def show_command(
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


@app.command("diff")
def diff_command(ctx: typer.Context, one: str, other: str) -> None:
    """Values that differ between two profiles."""
    s = session(ctx)
    folder = s.fleet().paths.profiles
    first, second = load_profile(folder, one), load_profile(folder, other)
    names = sorted({*first.values, *second.values})
    pairs = [(n, first.values.get(n), second.values.get(n)) for n in names]
    rows = [
        (n, a.value if a else None, b.value if b else None)
        for n, a, b in pairs
        if (a.value if a else None) != (b.value if b else None)
    ]
    if s.json:
        show_json({"schema": 1, "differences": [{"name": n, one: a, other: b} for n, a, b in rows]})
    else:
        show_diff(one, other, rows)


@app.command("set")
def set_command(
    ctx: typer.Context,
    profile: Annotated[str, typer.Argument(help="The profile to change.")],
    assignment: Annotated[str, typer.Argument(metavar="NAME=VALUE")],
    reason: Annotated[str, typer.Option(help="Why; kept with the value.")],
    live: Annotated[bool, typer.Option("--live", help="Also set it on running engines now.")] = False,
    side: Annotated[str | None, typer.Option(help="Who reads a variable that pdctl does not know.")] = None,
) -> Exit:
    """Change one value; it counts as unverified until its watchdog was seen to fire."""
    s = session(ctx)
    fleet = s.fleet()
    env, equals, value = assignment.partition("=")
    if not equals:
        raise typer.BadParameter("must be NAME=VALUE.", param_hint="NAME=VALUE")
    by = f"{getpass.getuser()}@{socket.gethostname()}"
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
