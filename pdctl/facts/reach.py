"""Which addresses a host reached, as it reaches them itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdctl.facts.missing import Missing

REFUSED = "refused"
# A connect that is not answered in this time is taken for one that never will be, seconds.
CONNECT = 1.5


@dataclass(frozen=True)
class Path:
    """Whether unfragmented packets of the interface's full size came through, there and back.

    `small`: whether any did; without it nothing is known of the large ones.
    """

    small: bool
    there: bool
    back: bool


@dataclass(frozen=True)
class Reached:
    """`error` is "" when it was reached, REFUSED when nothing listens, else what went wrong."""

    error: str
    seconds: float
    path: Path | None = None

    @property
    def ok(self) -> bool:
        return not self.error


def key(address: str, port: int) -> str:
    return f"{address}:{port}"


def parse(rows: dict[str, Any] | Missing) -> dict[str, Reached] | Missing:
    """ "address:port" -> how it went."""
    if isinstance(rows, Missing):
        return rows
    return {
        where: Reached(r["error"], r["seconds"], Path(**r["path"]) if "path" in r else None)
        for where, r in rows.items()
    }
