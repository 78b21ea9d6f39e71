"""Which line of a TOML file a key stands on; tomllib itself keeps no positions.

The text has already been accepted by tomllib, so this scanner only has to find keys: it follows
table headers, and skips over strings, comments and arrays that span lines.
"""

from __future__ import annotations

import re

Path = tuple[str, ...]
_KEY = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.?)""")
_TOKEN = re.compile(r'"""|\'\'\'|"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*|[\[\]{}]')


def _dotted(text: str) -> Path:
    parts: list[str] = []
    at = 0
    while match := _KEY.match(text, at):
        parts.append(next(g for g in match.groups()[:3] if g is not None))
        at = match.end()
        if not match.group(4):
            break
    return tuple(parts)


class _Value:
    """What is still open at the end of a line: brackets, or a string over several lines."""

    def __init__(self) -> None:
        self.depth = 0
        self.quote = ""

    @property
    def open(self) -> bool:
        return self.depth > 0 or bool(self.quote)

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            if self.quote:
                end = text.find(self.quote, at)
                if end < 0:
                    return
                at, self.quote = end + 3, ""
                continue
            match = _TOKEN.search(text, at)
            if match is None:
                return
            at, token = match.end(), match.group()
            if token in ('"""', "'''"):
                self.quote = token
            elif token in "[{":
                self.depth += 1
            elif token in "]}":
                self.depth -= 1


def key_lines(text: str) -> dict[Path, int]:
    """Key path -> line number from 1. Keys inside inline tables share their table's line."""
    found: dict[Path, int] = {}
    table: Path = ()
    value = _Value()
    for number, line in enumerate(text.splitlines(), 1):
        if value.open:
            value.feed(line)
            continue
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if bare.startswith("["):
            table = _dotted(bare.lstrip("["))
            path = table
        else:
            key = _dotted(bare)
            path = table + key
            value.feed(bare.partition("=")[2])
        for size in range(1, len(path) + 1):
            found.setdefault(path[:size], number)
        if path == table:
            found[path] = number
    return found


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of `path`, or of the nearest table around it; 1 when nothing of it is in the file."""
    for size in range(len(path), 0, -1):
        if path[:size] in lines:
            return lines[path[:size]]
    return 1
