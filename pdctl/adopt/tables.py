"""tables.toml, read once."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))


@cache
def names(table: str, key: str) -> frozenset[str]:
    return frozenset(_tables()[table][key])


@cache
def sentences(table: str, key: str) -> dict[str, str]:
    return dict(_tables()[table][key])
