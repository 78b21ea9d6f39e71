"""Signs: what a line of a log means, as tables; and how a log is searched for them, in one pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pdctl.adapters.stamps import rank, written
from pdctl.adapters.traces import Event

LINE = 400  # characters of a line that are kept as evidence
SEARCHED = 4000  # characters of a line that patterns see
REPEATS = 500  # events of one sign in one log that are kept: the first half and the last half


@dataclass(frozen=True)
class Sign:
    """`key` is a literal that every such line holds (case counts); `pattern` narrows it and names values.

    A sign is a fact about a line, never a cause. Its name is "family.what": nixl.remote_disconnect.
    """

    name: str
    key: str
    pattern: str = ""

    @cached_property
    def regex(self) -> re.Pattern[str] | None:
        return re.compile(self.pattern) if self.pattern else None

    def read(self, line: str) -> dict[str, str] | None:
        """The named values of `line`, None when it is not this sign."""
        if self.key not in line:
            return None
        if self.regex is None:
            return {}
        found = self.regex.search(line)
        return None if found is None else {k: v for k, v in found.groupdict().items() if v is not None}


class Table:
    """All signs, ready to be looked for."""

    def __init__(self, signs: Sequence[Sign]) -> None:
        self._by_key: dict[str, list[Sign]] = {}
        for sign in signs:
            self._by_key.setdefault(sign.key, []).append(sign)

    def scan(
        self, text: str, party: str, document: str, near: float | None = None, before: int = 0
    ) -> tuple[Event, ...]:
        """Events of one log. A line without a stamp has the one before it; one line may be several events.

        `before` are the lines of the log's older files.
        """
        events: dict[str, list[Event]] = {}
        at: float | None = None
        # Few keys occur in one log: looking for those alone is what makes a long one readable in seconds.
        present = [(key, signs) for key, signs in self._by_key.items() if key in text]
        for number, line in enumerate(text.splitlines(), 1):
            stamp = written(line, near)
            at = at if stamp is None else stamp
            signs = [sign for key, of_key in present if key in line for sign in of_key]
            for name, values in _read(signs, line[:SEARCHED]).items():
                kept = line.strip()[:LINE]
                where, order = f"{document}:{number}", before + number
                event = Event(name, party, at, order, where, kept, rank(line), values)
                events.setdefault(name, []).append(event)
        return tuple(sorted((e for found in events.values() for e in _bounded(found)), key=lambda e: e.order))


def _read(signs: Sequence[Sign], line: str) -> dict[str, dict[str, str]]:
    """Name -> values of the signs that the line is; the first of two with one name."""
    found: dict[str, dict[str, str]] = {}
    for sign in signs:
        if sign.name not in found and (values := sign.read(line)) is not None:
            found[sign.name] = values
    return found


def _bounded(events: list[Event]) -> list[Event]:
    half = REPEATS // 2
    return events if len(events) <= REPEATS else [*events[:half], *events[-half:]]
