"""Numbers as an operator says them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def span(seconds: float | None) -> str:
    """12.3 s, 4 min, 2.5 h; "unknown" for None."""
    if seconds is None:
        return "unknown"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def count(n: int, one: str, many: str = "") -> str:
    """1 request, 3 requests."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def some(items: Sequence[str], limit: int = 5) -> list[str]:
    """The first `limit` lines, and how many more there are."""
    rest = len(items) - limit
    return [*items[:limit], f"and {rest} more"] if rest > 0 else list(items)


def listed(names: Iterable[str]) -> str:
    """a, b and c."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"


def few(names: Iterable[str], limit: int = 4) -> str:
    """a, b, c, d and 12 more."""
    names = list(names)
    rest = len(names) - limit
    return f"{', '.join(names[:limit])} and {rest} more" if rest > 1 else listed(names)
