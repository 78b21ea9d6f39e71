"""Secrets of a unit: a file NAME=VALUE of mode 0600 beside the fleet file, and where a command names them."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
REFERENCE = re.compile(r"\{secret:([A-Za-z_][A-Za-z0-9_]*)\}")


def read_secrets(path: Path) -> dict[str, tuple[str, int]]:
    """Name -> (value, line): a value is all that stands behind the first =. OSError, or ValueError with a
    sentence that never repeats the text."""
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"{path} is open to others: chmod 600 {path}.")
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}:{number}: is no NAME=VALUE.")
        found[match[1]] = (match[2], number)
    return found


def write_secrets(path: Path, values: Mapping[str, str]) -> None:
    """0600 from the first byte."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in sorted(values.items())), encoding="utf-8")


def references(command: Sequence[str]) -> list[str]:
    """Names that `command` takes from the file, in order."""
    return [name for word in command for name in REFERENCE.findall(word)]


def filled(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """`command` with its secrets in place."""
    return [REFERENCE.sub(lambda found: values[found[1]], word) for word in command]
