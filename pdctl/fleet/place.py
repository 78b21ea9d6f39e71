"""Where in the fleet file something stands, for what is found wrong with it once hosts were asked."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.fleet.problems import TomlFile


def place(fleet: Fleet, *keys: str) -> str:
    """`FILE:LINE` of a key, or of the nearest table around it; the file alone when it cannot be read now."""
    try:
        return f"{fleet.path}:{TomlFile(fleet.path).line(*keys)}"
    except ConfigError:
        return str(fleet.path)
