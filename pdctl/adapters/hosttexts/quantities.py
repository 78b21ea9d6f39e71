"""Amounts as tools print them: with units, with "N/A", with percent signs; pure."""

from __future__ import annotations

import re

_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_AMOUNT = re.compile(r"^(?P<n>\d+(?:[.,]\d+)?)\s*(?P<unit>[BKMGTP]?)i?B?$", re.IGNORECASE)
_NUMBER = re.compile(r"^\s*\[?(?P<n>-?\d+(?:\.\d+)?)")


def in_bytes(text: str, unit: int = 1) -> int | None:
    """ "64", "59G", "1.5Ti", "800 GiB"; a bare number counts `unit` bytes. None for what is no amount."""
    found = _AMOUNT.match(text.strip())
    if not found:
        return None
    each = _BYTES[found["unit"].lower()] if found["unit"] else unit
    return int(float(found["n"].replace(",", ".")) * each)


def number(text: str) -> float | None:
    """The number that `text` begins with: "98 %", "72.10 W"; None for "[N/A]"."""
    found = _NUMBER.match(text)
    return float(found["n"]) if found else None
