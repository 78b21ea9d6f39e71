"""pdctl profile set"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import Session, session
from pdctl.exits import Exit
from pdctl.fleet.check.finding import Finding
from pdctl.fleet.check.live import reach
from pdctl.fleet.check.run import check_profiles
from pdctl.fleet.edit import Change, set_value
from pdctl.fleet.model import Fleet
from pdctl.flows.changing import changing
from pdctl.flows.live import check_live, set_live
from pdctl.remote.journal import Call, Journal
from pdctl.remote.operator import me
from pdctl.render.check_profile import lines
from pdctl.render.paths import here
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
    wanted = (profile, env, value, reason, me().name, side)
    call = Call(f"profile set {profile} {env}{' --live' if live else ''}")
    results: dict[str, str] = {}
    if live:
        check_live(env)
        with s.context() as context, changing(context, call) as journal:
            change = set_value(fleet.paths.profiles, *wanted)
            _note(fleet, journal, change, reason)
            results = set_live(context, profile, env)
            if any(results.values()):
                journal.ends("failed", f"not set on {', '.join(n for n, why in results.items() if why)}")
    else:
        # A slip of the finger is no run.
        change = set_value(fleet.paths.profiles, *wanted)
        with Journal(fleet.paths.journal, call) as journal:
            _note(fleet, journal, change, reason)
    _show(s, profile, change, results, _wrong(fleet, profile, env), live)
    return Exit.PARTIAL if any(results.values()) else Exit.OK


def _note(fleet: Fleet, journal: Journal, change: Change, reason: str) -> None:
    said = f"{change.env}: {change.old or '(unset)'} -> {change.new}"
    journal.step("profile", fleet.control, said, "done", 0.0, reason)


def _wrong(fleet: Fleet, profile: str, env: str) -> list[Finding]:
    """What `profile check` says of the new value; that it is not deployed yet is said anyway."""
    found = check_profiles(fleet, profile)
    return [f for f in found if f.kind != "live" and f.name.partition("=")[0] == env]


def _show(
    s: Session, profile: str, change: Change, results: dict[str, str], wrong: list[Finding], live: bool
) -> None:
    env = change.env
    if s.json:
        document = {"env": env, "old": change.old, "new": change.new, "file": str(change.file)}
        findings = [f.document() for f in wrong]
        show_json({"schema": 1, "profile": profile} | document | {"live": results, "findings": findings})
        return
    file = here(str(change.file))
    print(f"{profile}: {env}: {change.old or '(unset)'} -> {change.new}, not verified yet ({file})")
    for finding in wrong:
        what, do = lines(finding)
        print(f"{finding.level}: {what}\n        {do}")
    for name, why in results.items():
        print(f"{name}: {why or 'set'}")
    if not live:
        why = reach(env)
        sooner = f": {why}" if why else "; --live sets it at once."
        print(f"Running engines keep the old value until `pdctl deploy`{sooner}")
