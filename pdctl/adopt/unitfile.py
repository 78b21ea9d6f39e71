"""systemd's own formats: unit files with drop-ins, environment files, and how their words are quoted.

After systemd.syntax(7), systemd.exec(5) and systemd.service(5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "s": " ",
    "\\": "\\",
    '"': '"',
    "'": "'",
}
_NUMBER = re.compile(r"x([0-9A-Fa-f]{2})|([0-7]{3})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")


_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Takes a character, gives the state for the next one.
State = Callable[[str], Any]


@dataclass(frozen=True)
class Directive:
    """`key=value` of a section, from lines `first` to `last`; an empty value resets a list."""

    section: str
    key: str
    value: str
    file: str
    first: int
    last: int


def directives(text: str, file: str) -> Iterator[Directive]:
    """In order. A backslash at a line's end is a space; blank lines and comments in between do not count."""
    section, whole, first = "", "", 0
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.lstrip()
        if not bare or bare[0] in "#;":
            continue
        first = first if whole else number
        if (len(bare) - len(bare.rstrip("\\"))) % 2:
            whole += bare[:-1] + " "
            continue
        whole, said = "", (whole + bare).strip()
        if said.startswith("[") and said.endswith("]"):
            section = said[1:-1]
            continue
        key, equals, value = said.partition("=")
        yield Directive(
            section, key.strip() if equals else "", value.strip() if equals else said, file, first, number
        )


def words(text: str) -> list[str] | None:
    """Split and unquote as ExecStart= and Environment= are; None for a quote without end."""
    found: list[str] = []
    current: str | None = None
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            piece, at = _escape(text, at)
            current = (current or "") + piece
        elif quote:
            if char == quote:
                quote = ""
            else:
                current = (current or "") + char
        elif char in "\"'":
            quote, current = char, current or ""
        elif char in " \t\n":
            found += [] if current is None else [current]
            current = None
        else:
            current = (current or "") + char
    if quote:
        return None
    return found + ([] if current is None else [current])


def _escape(text: str, at: int) -> tuple[str, int]:
    """What stands behind a backslash; an unknown escape keeps its backslash."""
    if number := _NUMBER.match(text, at):
        code = int(number[1] or number[3] or number[4] or "0", 16) if not number[2] else int(number[2], 8)
        return chr(code), number.end()
    char = text[at : at + 1]
    return _ESCAPES.get(char, "\\" + char), at + 1


class EnvFile:
    """An EnvironmentFile= as systemd reads it, character by character.

    `found` are (name, value, line) in order, `odd` are (line, what) of text that systemd ignores, or that its
    versions read differently.
    """

    def __init__(self, text: str) -> None:
        self.found: list[tuple[str, str, int]] = []
        self.odd: list[tuple[int, str]] = []
        self._key, self._value, self._kept, self._line, self._first = "", "", 0, 1, 1
        self._state: State = self._before_key
        for char in text.replace("\r", "\n"):
            self._state = self._state(char)
            self._line += char == "\n"
        if self._state in (self._in_key, self._before_key, self._comment, self._comment_escaped):
            self._state("\n")
        else:
            self._push()

    def _push(self) -> State:
        name = self._key.strip(" \t")
        if _ENV_NAME.fullmatch(name):
            self.found.append((name, self._value[: self._kept], self._first))
        else:
            self.odd.append((self._first, f"{name!r} is no variable's name: systemd ignores the line"))
        self._key = self._value = ""
        self._kept = 0
        return self._before_key

    def _add(self, text: str, space: bool = False) -> None:
        """Blanks at the end of an unquoted value do not count: `_kept` is how much of it does."""
        self._value += text
        if not space:
            self._kept = len(self._value)

    def _before_key(self, char: str) -> State:
        if char in "#;":
            return self._comment
        if char in " \t\n":
            return self._before_key
        self._key, self._first = char, self._line
        return self._in_key

    def _in_key(self, char: str) -> State:
        if char == "\n":
            self.odd.append((self._first, "is no NAME=VALUE: systemd ignores the line"))
            self._key = ""
            return self._before_key
        if char == "=":
            return self._before_value
        self._key += char
        return self._in_key

    def _before_value(self, char: str) -> State:
        if char in "'\"":
            return self._single if char == "'" else self._double
        return self._before_value if char in " \t" else self._in_value(char)

    def _in_value(self, char: str) -> State:
        if char == "\n":
            return self._push()
        if char == "\\":
            return self._escaped
        self._add(char, space=char in " \t")
        return self._in_value

    def _escaped(self, char: str) -> State:
        if char != "\n":
            self._add(char)
        return self._in_value

    def _single(self, char: str) -> State:
        if char == "'":
            return self._before_value
        self._add(char)
        return self._single

    def _double(self, char: str) -> State:
        if char in '"\\':
            return self._before_value if char == '"' else self._double_escaped
        self._add(char)
        return self._double

    def _double_escaped(self, char: str) -> State:
        if char != "\n":
            self._add(char if char in '"\\`$' else "\\" + char)
        return self._double

    def _comment(self, char: str) -> State:
        if char == "\\":
            return self._comment_escaped
        return self._before_key if char == "\n" else self._comment

    def _comment_escaped(self, char: str) -> State:
        if char == "\n":
            self.odd.append((self._line, "a comment that ends in a backslash goes on before systemd 254"))
            return self._before_key
        return self._comment
