"""Names and words of fleet files and profiles: the nearest valid one, and what none may hold."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

UNPRINTABLE = "holds a line break or another control character."


def unprintable(text: str) -> bool:
    """Whether no unit file, environment or command line can hold the text as one word."""
    return any(ord(c) < 32 or ord(c) == 127 for c in text)


def nearest(name: str, known: Iterable[str]) -> str:
    """`Did you mean …?`, or the valid names when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1, 0.6)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Valid: {', '.join(names)}." if names else ""
