"""What the global options mean to a verb."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.render.progress import Progress
from pdctl.transport.ssh.ask import begin_line

LockWait = Annotated[
    float,
    typer.Option(min=0, help="Wait for another run to end, seconds; nobody waits for a manual lock."),
]
# Of every verb that stops or restarts what runs; see `confirm`.
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass
class Session:
    """`resumes` is the earlier run that this one goes on with."""

    fleet_file: str | None
    json: bool
    resumes: str = ""

    def fleet(self) -> Fleet:
        return load_fleet(self.fleet_file)

    def context(self, fleet: Fleet | None = None) -> Context:
        """For flows; progress goes to stderr, so stdout stays the result's alone."""
        progress = Progress(quiet=self.json)
        made = fleet or self.fleet()
        return Context(made, say=progress.say, wait=progress.wait, resumes=self.resumes)


def session(ctx: typer.Context) -> Session:
    root = ctx.find_root()
    return Session(
        root.params.get("fleet"), bool(root.params.get("json")), str(root.params.get("resumes") or "")
    )


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere --yes must have been given. Declining changes nothing."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("needs_yes", f"{question} There is no terminal to ask on.", "Add --yes to go on.")
    begin_line()
    if not typer.confirm(question, err=True):
        raise PdctlError("declined", "Nothing was changed.", exit=Exit.INTERRUPTED)


_SPANS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def span_seconds(option: str, text: str) -> float:
    """90s, 30m, 2h, 1d of that option; ConfigError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        code = f"bad_{option.strip('-')}"
        raise ConfigError(code, f"{option} {text} is no time.", "Write 90s, 30m or 2h.")
    return float(found[1]) * _SPANS[found[2]]
