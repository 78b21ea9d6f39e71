"""Signs: what a line of a log means, as tables; and how a log is searched for them, in one pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pdctl.adapters.stamps import rank, written
from pdctl.adapters.traces import Event

LINE = 400  # characters of a line that are kept as evidence
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
        keys = sorted(self._by_key, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, keys)))

    def _signs_of(self, line: str) -> list[tuple[Sign, dict[str, str]]]:
        if not self._any.search(line):
            return []
        near = [sign for key, signs in self._by_key.items() if key in line for sign in signs]
        return [(sign, values) for sign in near if (values := sign.read(line)) is not None]

    def scan(self, text: str, party: str, document: str, near: float | None = None) -> tuple[Event, ...]:
        """Events of one log. A line without a stamp has the one before it; one line may be several events."""
        events: dict[str, list[Event]] = {}
        at: float | None = None
        for number, line in enumerate(text.splitlines(), 1):
            stamp = written(line, near)
            at = at if stamp is None else stamp
            for sign, values in self._signs_of(line):
                kept = line.strip()[:LINE]
                event = Event(sign.name, party, at, number, f"{document}:{number}", kept, rank(line), values)
                events.setdefault(sign.name, []).append(event)
        return tuple(sorted((e for found in events.values() for e in _bounded(found)), key=lambda e: e.order))


def _bounded(events: list[Event]) -> list[Event]:
    half = REPEATS // 2
    return events if len(events) <= REPEATS else [*events[:half], *events[-half:]]
