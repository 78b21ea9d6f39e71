"""Where in the fleet file something stands, for what is found wrong with it once hosts were asked."""

from __future__ import annotations

from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet, Host
from pdctl.fleet.problems import TomlFile


def place(fleet: Fleet, *keys: str) -> str:
    """`FILE:LINE` of a key, or of the nearest table around it; the file alone when it cannot be read now."""
    return _line(fleet.path, *keys)


def host_key(host: Host, key: str) -> str:
    """`FILE:LINE: hosts.NAME.KEY`; without the place where `host` is of no fleet file."""
    named = f"hosts.{host.name}.{key}"
    return f"{_line(host.file, 'hosts', host.name, key)}: {named}" if host.file else named


def _line(file: Path, *keys: str) -> str:
    try:
        return f"{file}:{TomlFile(file).line(*keys)}"
    except ConfigError:
        return str(file)
