"""One word of a script: literals, quotes, parameters, and what cannot be evaluated without running it."""

from __future__ import annotations

import re
from collections.abc import Callable

from pdctl.adopt.shell import ansi
from pdctl.adopt.shell.source import Source
from pdctl.adopt.shell.tree import Dark, Lit, Param, Part, Word

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_PARAM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(?:\[(@|\*|[0-9]+)\])?(:[-=?+]|[-=?+])?")
_META = " \t\n;&|<>()"
SUBSTITUTION = "is a command substitution, which is not run"

# Reads commands up to a closing bracket; the parser of whole scripts gives itself.
Nested = Callable[[Source], None]


def read_word(source: Source, nested: Nested) -> Word:
    """The word at the position; the position is behind it afterwards. Empty when there is none."""
    start, line = source.at, source.line()
    parts: list[Part] = []
    while not source.ended:
        if source.here in "<>" and source.text[source.at + 1 : source.at + 2] == "(":
            parts.append(_substitution(source, nested, False, "is a process substitution, which is not run"))
        elif source.here in _META:
            break
        else:
            parts += _part(source, nested, quoted=False)
    return Word(_merged(parts), source.since(start), line)


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Lit) and isinstance(last, Lit) and part.quoted == last.quoted:
            merged[-1] = Lit(last.text + part.text, part.quoted)
        else:
            merged.append(part)
    return tuple(merged)


def _part(source: Source, nested: Nested, quoted: bool) -> list[Part]:
    """One step of a word; `quoted` inside double quotes."""
    here = source.here
    if here == "\\":
        return _backslash(source, quoted)
    if here == "'" and not quoted:
        return [Lit(_until(source, "'"), True)]
    if here == '"' and not quoted:
        return _double(source, nested)
    if here == "`":
        return [_backquoted(source, quoted)]
    if here == "$":
        return _dollar(source, nested, quoted)
    source.at += 1
    return [Lit(here, quoted)]


def _backslash(source: Source, quoted: bool) -> list[Part]:
    following = source.text[source.at + 1 : source.at + 2]
    if following == "":
        raise source.fail("a backslash ends the script")
    source.at += 2
    if following == "\n":
        return []
    if quoted and following not in '$`"\\':
        return [Lit("\\" + following, True)]
    return [Lit(following, True)]


def _until(source: Source, mark: str) -> str:
    """The text between the character here and the next `mark`."""
    start = source.at
    end = source.text.find(mark, start + 1)
    if end < 0:
        raise source.fail("a quote has no end", start)
    source.at = end + 1
    return source.text[start + 1 : end]


def _double(source: Source, nested: Nested) -> list[Part]:
    start = source.at
    source.at += 1
    parts: list[Part] = []
    while source.here != '"':
        if source.ended:
            raise source.fail("a quote has no end", start)
        parts += _part(source, nested, quoted=True)
    source.at += 1
    # "" is a word of its own; "$@" may be none at all.
    return parts or [Lit("", True)]


def _backquoted(source: Source, quoted: bool) -> Dark:
    start = source.at
    source.at += 1
    while source.here != "`":
        if source.ended:
            raise source.fail("a backquote has no end", start)
        source.at += 2 if source.here == "\\" else 1
    source.at += 1
    return Dark(source.since(start), SUBSTITUTION, quoted)


def _dollar(source: Source, nested: Nested, quoted: bool) -> list[Part]:
    start = source.at
    following = source.text[start + 1 : start + 2]
    if source.startswith("$(("):
        return [_arithmetic(source, quoted)]
    if following == "(":
        return [_substitution(source, nested, quoted, SUBSTITUTION)]
    if following == "{":
        return [_braced(source, nested, quoted)]
    if following == "[":
        raise source.fail("$[…] is an arithmetic form that is not read")
    if following == "'" and not quoted:
        source.at += 1
        return [_ansi(source, start)]
    if following == '"' and not quoted:
        source.at += 1
        return _double(source, nested)
    source.at += 1
    found = source.match(_PLAIN_PARAM)
    if found is None:
        return [Lit("$", quoted)]
    source.at = found.end()
    return [Param(found[0], "", "", None, quoted, source.since(start))]


def _ansi(source: Source, start: int) -> Part:
    begin = source.at + 1
    source.at = begin
    while source.here != "'":
        if source.ended:
            raise source.fail("a quote has no end", start)
        source.at += 2 if source.here == "\\" else 1
    source.at += 1
    decoded = ansi.decode(source.text[begin : source.at - 1])
    if decoded is None:
        return Dark(source.since(start), "holds a character that no text holds", True)
    return Lit(decoded, True)


def _arithmetic(source: Source, quoted: bool) -> Dark:
    start, depth = source.at, 0
    source.at += 1
    while True:
        if source.ended:
            raise source.fail("$((…)) has no end", start)
        depth += {"(": 1, ")": -1}.get(source.here, 0)
        source.at += 1
        if depth == 0:
            return Dark(source.since(start), "is arithmetic, which is not computed", quoted)


def _substitution(source: Source, nested: Nested, quoted: bool, what: str) -> Dark:
    start = source.at
    source.at += 2
    nested(source)
    if source.here != ")":
        raise source.fail("a substitution has no end", start)
    source.at += 1
    return Dark(source.since(start), what, quoted)


def _braced(source: Source, nested: Nested, quoted: bool) -> Part:
    start = source.at
    source.at += 2
    found = source.match(_BRACED)
    simple = found is not None and (found[3] or source.text[found.end() : found.end() + 1] == "}")
    if found is not None and simple:
        source.at = found.end()
        arg = _argument(source, nested, quoted, start)
        text = source.since(start)
        if arg is not None:
            return Param(found[1], found[2] or "", found[3] or "", arg if found[3] else None, quoted, text)
        return Dark(text, "mixes quotes in a way that is not read", quoted)
    _argument(source, nested, quoted, start)
    return Dark(source.since(start), "is an expansion that is not evaluated", quoted)


def _argument(source: Source, nested: Nested, quoted: bool, start: int) -> Word | None:
    """Up to the closing brace; None for quotes inside quotes, which bash reads in ways of their own."""
    begin, line = source.at, source.line()
    parts: list[Part] = []
    odd = False
    while source.here != "}":
        if source.ended:
            raise source.fail("${…} has no end", start)
        if quoted and source.here in "'\"\\":
            odd = True
            if source.here == '"':
                _double(source, nested)
            else:
                source.at += 2 if source.here == "\\" else 1
            continue
        parts += _part(source, nested, quoted)
    word = Word(_merged(parts), source.since(begin), line)
    source.at += 1
    return None if odd else word
