"""What rules say of log lines: a few of them as evidence, where they stand, since when; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.words import count

SHOWN = 240  # characters of a line in a finding
_HEAD = 110  # of them from its start


def quote(event: Event) -> str:
    """One line as evidence: who wrote it and where it stands. A long one keeps its end, which says why."""
    text = event.line
    if len(text) > SHOWN:
        text = f"{text[:_HEAD]} … {text[_HEAD + 3 - SHOWN :]}"
    return f"{event.party} ({event.where}): {text}"


def quoted(events: Sequence[Event], limit: int = 3) -> list[str]:
    """The first of them, and how many more there are; a line that several signs know stands once."""
    events = list({(e.where, e.line): e for e in events}.values())
    lines = [quote(event) for event in events[:limit]]
    rest = len(events) - limit
    return [*lines, f"and {count(rest, 'more line')} like this"] if rest > 0 else lines


def since(events: Iterable[Event]) -> float | None:
    """When the first of them was written, where any says so."""
    return min((e.at for e in events if e.at is not None), default=None)


def writers(events: Iterable[Event]) -> list[str]:
    """Whose logs they are in, in order of first appearance."""
    return list(dict.fromkeys(e.party for e in events))
