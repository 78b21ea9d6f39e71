"""Log lines that mean something, one file per family, and the table of them all."""

from __future__ import annotations

from pdctl.adapters.signs import nixl
from pdctl.adapters.signs.sign import Sign, Table

SIGNS: tuple[Sign, ...] = (*nixl.SIGNS,)
TABLE = Table(SIGNS)
NAMES = frozenset(sign.name for sign in SIGNS)
