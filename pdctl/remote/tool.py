"""Host tools: small programs that run on a host through `python3 - VERB JSON`, their source on stdin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pdctl.errors import ConfigError, DeadlineError
from pdctl.transport.base import Transport, checked
from pdctl.transport.command import Command

# Exit code of a tool that may not write where it was told to.
DENIED = 77
QUICK = 20.0

_MAKE = 'mkdir -p -- "$1" && chown "$2" "$1"'


def call_tool(
    transport: Transport, python: str, tool: ModuleType, verb: str, ask: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """The tool's answer. `ask` holds no secrets: it is part of a command line.

    A `root` below which nothing can be made is made as root, for the login user, and asked again.
    """
    source = Path(str(tool.__file__)).read_bytes()
    command = Command((python, "-", verb, json.dumps(ask)), stdin=source)
    result = transport.run(command, QUICK)
    if result.rc == DENIED and _make(transport, ask["root"]):
        result = transport.run(command, QUICK)
    if result.timed_out:
        raise DeadlineError("tool_silent", f"{what} on {transport.host} did not end in {QUICK:g} s.")
    if result.rc != 0:
        said = result.tail(1)
        message = f"{what} on {transport.host} failed: {said[0] if said else f'exit code {result.rc}'}."
        raise ConfigError("tool_failed", message, details=[f"command: {python} - {verb}"])
    found: dict[str, Any] = json.loads(result.text)
    return found


def _make(transport: Transport, root: str) -> bool:
    """Whether `root` was made now; one that is there already is left as it is."""
    if transport.run(Command(("test", "-d", root)), QUICK).rc == 0:
        return False
    make_root(transport, root)
    return True


def make_root(transport: Transport, root: str) -> None:
    """Made as root and given to the login user."""
    login = checked(transport, Command(("id", "-un")), QUICK, "asking who is logged in").text.strip()
    command = Command(("sh", "-c", _MAKE, "sh", root, login), root=True)
    checked(transport, command, QUICK, f"making {root}")
