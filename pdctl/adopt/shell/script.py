"""A whole bash script: the engines it starts, and a note for each of its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pdctl.adopt.notes import Grade, Note
from pdctl.adopt.service import Service
from pdctl.adopt.shell.machine import Machine, Sourced
from pdctl.adopt.shell.source import ScriptError
from pdctl.adopt.shell.state import World
from pdctl.adopt.shell.verbs import VERBS
from pdctl.errors import ConfigError

_SHEBANG = re.compile(r"#![ \t]*(\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?(\S*/)?(\S+)(.*)")


@dataclass(frozen=True)
class Followed:
    services: tuple[Service, ...]
    notes: tuple[Note, ...]


def follow(file: str, text: str, world: World, sourced: Sourced) -> Followed:
    """ConfigError when `text` is no bash script, or one that cannot be taken apart."""
    machine = Machine(file, world, sourced, VERBS)
    _shebang(machine, text)
    try:
        machine.run(text)
    except ScriptError as error:
        raise ConfigError(
            "not_a_script",
            f"{file}:{error.line}: {error.what}.",
            "Nothing was taken from it. Correct it, or adopt the running engine with pid:NUMBER.",
        ) from None
    return Followed(tuple(machine.services), (*machine.notes, *_unexported(machine)))


def _shebang(machine: Machine, text: str) -> None:
    found = _SHEBANG.match(text)
    if found is None:
        return
    shell, options = found[3], found[4].strip()
    if shell not in ("bash", "sh", "dash"):
        hint = "Serve scripts are read as bash; adopt the running engine with pid:NUMBER instead."
        raise ConfigError("not_a_script", f"{machine.file} is a script for {shell}.", hint)
    if shell != "bash":
        machine.note(
            Grade.ASSUMED, f"{shell} is read as bash; where {shell} is another shell, words may split", line=1
        )
    if "l" in options.strip("-") and options.startswith("-"):
        machine.note(Grade.OPEN, "a login shell reads profiles first, and what they set is not known", line=1)


def _unexported(machine: Machine) -> list[Note]:
    """Variables that look meant for the engine and do not reach it."""
    state = machine.state
    what = "is not exported and not used: the engine sees it only where it was exported already; left out"
    return [
        Note(var.file, var.line, var.line, Grade.ASSUMED, name, what)
        for name, var in state.vars.items()
        if var.line
        and isinstance(var.value, str)
        and not var.exported
        and name.isupper()
        and name not in state.read
    ]
