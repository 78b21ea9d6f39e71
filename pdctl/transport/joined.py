"""One program for a host's Python out of several modules of pdctl."""

from __future__ import annotations

import re
from collections.abc import Iterable

_IMPORT = re.compile(r"^from (?:pdctl\b[\w.]*|__future__) import (?:\([^)]*\)|[^\n(]*)$", re.MULTILINE)


def joined(texts: Iterable[str]) -> bytes:
    """The modules' texts in order, without their imports of one another: those names are simply there.

    Not by `ast`: until CPython 3.11.8 and 3.12.2 (gh-106905) of two threads that parse at once one fails.
    """
    bare = (_IMPORT.sub(lambda found: "\n" * found[0].count("\n"), text) for text in texts)
    return "\n".join(["from __future__ import annotations", *bare]).encode() + b"\n"
