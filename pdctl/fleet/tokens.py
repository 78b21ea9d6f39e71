"""The fleet token: made once by init, kept 0600 beside the fleet file, copied to hosts as a file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet


def make_token(path: Path) -> None:
    """Write a new token, 0600 from the first byte; an existing one is kept."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32) + "\n")


def read_token(fleet: Fleet) -> str:
    """For `Authorization: Bearer …` on the admin verbs of engines and router."""
    return token_of(fleet.paths.token)


def read_drill_token(fleet: Fleet) -> str:
    """For `X-Drill-Token`; engines know it only when the fleet says drill = true."""
    return token_of(fleet.paths.drill_token)


def token_of(path: Path) -> str:
    """The token in this file; ConfigError when it cannot be used."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        hint = "Run `pdctl init --repair` beside the fleet file to make a new one."
        raise ConfigError("no_token", f"The token {path} cannot be read: {error.strerror}.", hint) from None
    except UnicodeDecodeError:
        token = ""  # nothing that a header could carry
    if not token:
        raise ConfigError(
            "no_token",
            f"The token {path} is empty, or not of ASCII.",
            "Delete it and run `pdctl init --repair`.",
        )
    return token
