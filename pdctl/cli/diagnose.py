"""pdctl diagnose"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.remedy import fix as mend
from pdctl.cli.session import session, span_seconds
from pdctl.cli.watch import watch as again
from pdctl.diagnose.report import document
from pdctl.diagnose.rule import Severity
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.names import nearest
from pdctl.flows.collect.run import Wanted
from pdctl.flows.diagnose import bundle_file, diagnose, diagnose_kept, judge_bundle, keep
from pdctl.render.diagnose import show
from pdctl.render.html.page import page as render
from pdctl.render.table import show_json

_LEVELS = {s.word: s for s in Severity}


FailOn = Annotated[
    str, typer.Option(metavar="LEVEL", help="Exit 3 from this severity on: info, warning, error.")
]
Saved = Annotated[
    str | None, typer.Option("--from", metavar="BUNDLE", help="Judge a saved bundle; no fleet is needed.")
]
Kept = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Also keep what was collected, as FILE (.tar.gz, 0600)."),
]
Pseudonyms = Annotated[
    bool, typer.Option("--pseudonyms", help="In FILE, other names for hosts, users, models, addresses.")
]
Since = Annotated[str, typer.Option(metavar="TIME", help="How far back logs are read: 90s, 30m, 2h.")]
Probes = Annotated[
    bool, typer.Option("--probes/--no-probes", help="Also ask what makes an engine compute a token.")
]
Stacks = Annotated[
    bool, typer.Option("--stacks", help="Also print every engine's threads, where py-spy is installed.")
]
Page = Annotated[
    str | None, typer.Option("--html", metavar="FILE", help="Also write the verdict as one HTML page.")
]
Every = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=1, help="Look again every SECONDS, until Ctrl-C.")
]
Fix = Annotated[bool, typer.Option("--fix", help="Show the remedy as a plan and run it after a yes.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --fix: do not ask.")]


def command(
    ctx: typer.Context,
    fail_on: FailOn = "warning",
    saved: Saved = None,
    bundle: Kept = None,
    pseudonyms: Pseudonyms = False,
    since: Since = "30m",
    probes: Probes = False,
    stacks: Stacks = False,
    page: Page = None,
    watch: Every = None,
    fix: Fix = False,
    yes: Yes = False,
) -> Exit:
    """Say who holds which request, since when and why; what is wrong, and the command that mends it."""
    if fail_on not in _LEVELS:
        raise ConfigError("bad_level", f"--fail-on {fail_on} is not a severity.", nearest(fail_on, _LEVELS))
    level, s, wanted = _LEVELS[fail_on], session(ctx), Wanted(span_seconds("--since", since), probes, stacks)
    if saved == "":
        raise ConfigError("no_bundle", "--from has no name: the folder or .tar.gz to judge stands behind it.")
    _refuse(saved, {"--bundle": bundle, "--watch": watch, "--fix": fix or None}, pseudonyms)
    if saved is not None and (asked := _asks(ctx, probes, stacks)):
        raise ConfigError("saved_bundle", f"--from judges a saved bundle; {asked} is for a running fleet.")
    if saved is not None:
        report = judge_bundle(Path(saved))
    else:
        target = bundle_file(bundle) if bundle is not None else None
        with s.context() as context:
            if watch is not None:
                again(lambda: diagnose(context, wanted=wanted), watch, s.json, level)
            report, documents = diagnose_kept(context, wanted=wanted)
            if target is not None:
                size = keep(context, documents, target, pseudonyms, report.facts.at)
                print(f"{target}: {size / 1024:.0f} KiB", file=sys.stderr)
    if page is not None:
        write(Path(page).expanduser(), render(report))
    if s.json and not fix:
        show_json(document(report, level))
    elif not s.json:
        show(report)
    return mend(ctx, s, report, yes) if fix else report.exit(level)


def _asks(ctx: typer.Context, probes: bool, stacks: bool) -> str:
    """The first option that says what to ask engines for."""
    source = ctx.get_parameter_source("since")
    given = {
        "--since": source is not None and source.name == "COMMANDLINE",
        "--probes": probes,
        "--stacks": stacks,
    }
    return next((name for name, told in given.items() if told), "")


def _refuse(saved: str | None, of_fleets: dict[str, object], pseudonyms: bool) -> None:
    """Options that do not go together."""
    given = [name for name, value in of_fleets.items() if value is not None]
    if pseudonyms and "--bundle" not in given:
        raise ConfigError("no_bundle_file", "--pseudonyms is for --bundle FILE.")
    if saved is not None and given:
        raise ConfigError("saved_bundle", f"--from judges a saved bundle; {given[0]} is for a running fleet.")
    if "--watch" in given and len(given) > 1:
        raise ConfigError("watch_alone", f"--watch looks again and again; give {given[0]} to a single look.")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write(path: Path, text: str) -> None:
    """For its owner alone: logs and addresses are in it. ConfigError where it cannot be written."""
    try:
        with open(path, "w", encoding="utf-8", opener=_private) as file:
            os.fchmod(file.fileno(), 0o600)  # also what was there before
            file.write(text)
    except OSError as error:
        raise ConfigError("bad_file", f"{path} cannot be written: {error.strerror}.") from None
    print(path, file=sys.stderr)
