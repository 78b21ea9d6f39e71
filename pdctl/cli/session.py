"""What the global options mean to a verb."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import typer

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.render.progress import Progress


@dataclass
class Session:
    fleet_file: str | None
    json: bool

    def fleet(self) -> Fleet:
        return load_fleet(self.fleet_file)

    def context(self, fleet: Fleet | None = None) -> Context:
        """For flows; progress goes to stderr, so stdout stays the result's alone."""
        progress = Progress(quiet=self.json)
        return Context(fleet or self.fleet(), say=progress.say, wait=progress.wait)


def session(ctx: typer.Context) -> Session:
    root = ctx.find_root()
    return Session(root.params.get("fleet"), bool(root.params.get("json")))


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere --yes must have been given. Declining changes nothing."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("needs_yes", f"{question} There is no terminal to ask on.", "Add --yes to go on.")
    if not typer.confirm(question, err=True):
        raise PdctlError("declined", "Nothing was changed.", exit=Exit.INTERRUPTED)
