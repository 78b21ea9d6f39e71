"""Where sources and what they read come from: this machine or a host, and files that the operator names."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pdctl.adopt.notes import Value
from pdctl.errors import ConfigError, PdctlError
from pdctl.transport.base import Transport
from pdctl.transport.command import Command


class Files(Protocol):
    """`read` is None for a file that is not there; ConfigError for one that is no text or may not be read.
    `listed` are the names in a folder, none when it is not there."""

    where: str

    def read(self, path: str) -> str | None: ...

    def listed(self, folder: str) -> list[str]: ...


class Here:
    """Files of this machine."""

    where = "here"

    def listed(self, folder: str) -> list[str]:
        try:
            return sorted(p.name for p in Path(folder).iterdir())
        except OSError:
            return []

    def read(self, path: str) -> str | None:
        try:
            return text_of(Path(path).expanduser().read_bytes(), path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError("unreadable", f"{path} cannot be read: {error.strerror}.") from None


class OnHost:
    """Files of a host; as root where the login may not read them."""

    def __init__(self, transport: Transport) -> None:
        self.where = f"on {transport.host}"
        self._transport = transport

    def listed(self, folder: str) -> list[str]:
        result = self._transport.run(Command(("ls", "-1", "--", folder)), 30.0)
        return sorted(result.text.splitlines()) if result.rc == 0 else []

    def read(self, path: str) -> str | None:
        for root in (False, True):
            try:
                return text_of(self._transport.get(path, root=root), path)
            except PdctlError as error:
                if error.code == "no_file":
                    return None
                if root or error.code != "cannot_read":
                    raise
        return None


def text_of(data: bytes, path: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("not_text", f"{path} is not UTF-8 text.") from None
    if "\0" in text:
        raise ConfigError("not_text", f"{path} holds a NUL byte: it is no text.")
    return text


@dataclass(frozen=True)
class Sourced:
    """Finds what `source FILE` names: given by the operator, at its path, or next to the script.

    `given` is path or file name, as a script may write it -> file of this machine.
    """

    files: Files
    given: Mapping[str, str]
    script: str | None

    def __call__(self, path: str, cwd: Value | None, script: str) -> tuple[str, str] | None:
        for key in (path, posixpath.basename(path)):
            if key in self.given:
                text = Here().read(self.given[key])
                if text is None:
                    raise ConfigError("no_file", f"--sourced: there is no file {self.given[key]}.")
                return self.given[key], text
        beside = posixpath.dirname(self.script) if self.script else None
        base = cwd if isinstance(cwd, str) else beside
        if not path.startswith("/") and base is None:
            return None
        full = posixpath.normpath(posixpath.join(base or "/", path))
        text = self.files.read(full)
        return None if text is None else (full, text)


def given_files(options: list[str]) -> dict[str, str]:
    """--sourced FILE stands for any path with that file name; --sourced PATH=FILE for that path alone."""
    given: dict[str, str] = {}
    for option in options:
        path, equals, file = option.rpartition("=")
        given[path if equals else posixpath.basename(file)] = file
    return given
