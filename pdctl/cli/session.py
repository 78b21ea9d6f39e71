"""What the global options mean to a verb."""

from __future__ import annotations

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
