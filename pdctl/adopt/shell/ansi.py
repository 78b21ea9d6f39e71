"""The text of a `$'…'` string."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ONE = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def decode(text: str) -> str | None:
    """None for what a UTF-8 text cannot hold, or what bash reads in ways of its own (\\c, NUL)."""
    ok = True

    def one(found: re.Match[str]) -> str:
        nonlocal ok
        hexadecimal = found[1] or found[2] or found[3]
        if found[6] is not None:
            return _ONE.get(found[6], found[0])
        number = int(hexadecimal, 16) if hexadecimal else int(found[4], 8) if found[4] else 0
        small = number < 0x80 if found[1] or found[4] else number < 0xD800
        if number == 0 or not small:
            ok = False
            return ""
        return chr(number)

    decoded = _ESCAPE.sub(one, text)
    return decoded if ok else None
