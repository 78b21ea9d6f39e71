"""Signs: what a line of a log means, as tables; and how a log is searched for them, in one pass."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from pdctl.adapters.stamps import rank, written
from pdctl.adapters.traces import Event

# Where a line of a server begins: at once, or behind what vLLM ("(Worker pid=4) "), journald, compose
# ("name  | "), kubectl ("[pod/name] ") or a container runtime ("TIME stderr F ") puts before it.
BEGIN = r"(?:^|[\])|:] |\bstd(?:out|err) [FP] )"
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
        self._by_name: dict[str, list[Sign]] = {}
        for sign in signs:
            self._by_name.setdefault(sign.name, []).append(sign)

    def scan(
        self, text: str, party: str, document: str, near: float | None = None, before: int = 0
    ) -> tuple[Event, ...]:
        """Events of one log. A line without a stamp has the one before it; one line may be several events.

        `before` are the lines of the log's older files.
        """
        log = _Log(text, near)
        found: list[Event] = []
        for name, signs in self._by_name.items():
            candidates = log.holding(sign.key for sign in signs)
            for number, values in _bounded(signs, log, candidates):
                line = log.line(number)
                where, order = f"{document}:{number + 1}", before + number + 1
                kept = line.strip()[:LINE]
                found.append(Event(name, party, log.written(number), order, where, kept, rank(line), values))
        return tuple(sorted(found, key=lambda e: e.order))


def _words(text: str) -> list[bytes]:
    """Without digits: numbers are what differs from line to line."""
    return text.encode(errors="replace").translate(None, b"0123456789").split()


class _Log:
    """One log: its lines by number from 0, which of them hold a literal, and when each was written."""

    def __init__(self, text: str, near: float | None) -> None:
        self._lines = text.splitlines(keepends=True)
        self._text, self._near = text, near
        self._words = b"\n".join(set(_words(text)))
        self._starts = list(accumulate(map(len, self._lines), initial=0))
        self._holding: dict[str, list[int]] = {}
        self._written: dict[int, float | None] = {-1: None}

    def line(self, number: int) -> str:
        return self._lines[number].splitlines()[0]

    def holding(self, keys: Iterable[str]) -> list[int]:
        """Numbers of the lines that hold one of the literals, ascending."""
        found = [self._of(key) for key in dict.fromkeys(keys)]
        return found[0] if len(found) == 1 else sorted({n for numbers in found for n in numbers})

    def _of(self, key: str) -> list[int]:
        """Searched for in the text as a whole: few keys occur in one log, and line by line it is slow."""
        if key not in self._holding:
            numbers: list[int] = []
            # Most keys are in no line: the words of a log are far fewer than its lines.
            at = self._text.find(key) if all(word in self._words for word in _words(key)) else -1
            while at >= 0:
                number = bisect_right(self._starts, at) - 1
                numbers.append(number)
                at = self._text.find(key, self._starts[number + 1])
            self._holding[key] = numbers
        return self._holding[key]

    def written(self, number: int) -> float | None:
        """The line's stamp, or that of the nearest line before it that has one."""
        first, at = number, None
        while first not in self._written:
            at = written(self._lines[first], self._near)
            if at is not None:
                break
            first -= 1
        else:
            at = self._written[first]
        self._written.update(dict.fromkeys(range(first, number + 1), at))
        return at


def _bounded(signs: Sequence[Sign], log: _Log, candidates: Sequence[int]) -> list[tuple[int, dict[str, str]]]:
    """(line, values) of the first half of REPEATS lines that are one of the signs, and of the last half.

    What is between is not read: a busy log prints some of them with every step.
    """

    def read(numbers: Iterable[int]) -> list[tuple[int, dict[str, str]]]:
        found: list[tuple[int, dict[str, str]]] = []
        for number in numbers:
            if (values := _read(signs, log.line(number)[:SEARCHED])) is not None:
                found.append((number, values))
                if len(found) == REPEATS // 2:
                    break
        return found

    head = read(candidates)
    rest = candidates[bisect_right(candidates, head[-1][0]) :] if len(head) == REPEATS // 2 else ()
    return [*head, *reversed(read(reversed(rest)))]


def _read(signs: Sequence[Sign], line: str) -> dict[str, str] | None:
    """Values of the first of the signs that the line is."""
    return next((values for sign in signs if (values := sign.read(line)) is not None), None)
