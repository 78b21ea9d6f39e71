"""Nearest valid names, said the same way everywhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """`Did you mean …?`, or the valid names when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1, 0.6)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Valid: {', '.join(names)}." if names else ""
