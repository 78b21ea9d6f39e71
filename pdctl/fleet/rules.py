"""The codes of diagnose's rules, as their files are named: what a fleet file may suppress."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "diagnose" / "rules"


@cache
def rule_names() -> dict[str, str]:
    """Code -> a word or two about it. The rules themselves are not imported for it."""
    files = sorted(_FOLDER.glob("*/pd[0-9][0-9][0-9]_*.py"))
    split = (f.stem.split("_", 1) for f in files)
    return {code.upper(): name.replace("_", " ") for code, name in split}
