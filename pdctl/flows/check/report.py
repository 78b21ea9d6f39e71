"""What a preflight says: one line a question, and the exit code of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from pdctl.exits import Exit
from pdctl.facts.missing import Missing


class Level(IntEnum):
    """SKIP: not looked at, and `found` says why; WARN will hurt; FAIL keeps the fleet from working."""

    OK = 0
    SKIP = 1
    WARN = 2
    FAIL = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Line:
    """`subject` is a host, a unit or `one -> other`, `check` names the question, `fix` says what to do."""

    subject: str
    check: str
    level: Level
    found: str
    wanted: str
    fix: str = ""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "level": self.level.word}


def ok(subject: str, check: str, found: str, wanted: str) -> Line:
    return Line(subject, check, Level.OK, found, wanted)


def warn(subject: str, check: str, found: str, wanted: str, fix: str) -> Line:
    return Line(subject, check, Level.WARN, found, wanted, fix)


def fail(subject: str, check: str, found: str, wanted: str, fix: str) -> Line:
    return Line(subject, check, Level.FAIL, found, wanted, fix)


def skip(subject: str, check: str, missing: Missing | str, wanted: str) -> Line:
    """Nothing is known, which is neither good nor bad."""
    return Line(subject, check, Level.SKIP, str(missing), wanted)


@dataclass(frozen=True)
class CheckReport:
    """`unreachable` are hosts that could not be asked; each has one line, which is a FAIL."""

    fleet: str
    at: float
    seconds: float
    lines: tuple[Line, ...]
    unreachable: tuple[str, ...] = ()

    def count(self, level: Level) -> int:
        return sum(line.level is level for line in self.lines)

    def worst(self, lines: Iterable[Line] | None = None) -> Level:
        return max((line.level for line in (self.lines if lines is None else lines)), default=Level.OK)

    def exit(self, fail_on: Level = Level.WARN) -> Exit:
        """FINDINGS from `fail_on` on. A host away is UNREACHABLE when that is all that is wrong, and PARTIAL
        when there are findings too: then what is known is not all.
        """
        rest = [li for li in self.lines if not (li.check == "host" and li.subject in self.unreachable)]
        found = self.worst(rest) >= fail_on
        if self.unreachable:
            return Exit.PARTIAL if found else Exit.UNREACHABLE
        return Exit.FINDINGS if found else Exit.OK

    def document(self, fail_on: Level = Level.WARN) -> dict[str, Any]:
        """check.json, schema 1."""
        return {
            "schema": 1,
            "fleet": self.fleet,
            "at": self.at,
            "seconds": round(self.seconds, 3),
            "exit": int(self.exit(fail_on)),
            "unreachable": list(self.unreachable),
            "counts": {level.word: self.count(level) for level in Level},
            "lines": [line.document() for line in self.lines],
        }


def ordered(lines: Sequence[Line]) -> tuple[Line, ...]:
    """By subject as they came, so that one machine's lines stand together."""
    places = {subject: n for n, subject in enumerate(dict.fromkeys(line.subject for line in lines))}
    return tuple(sorted(lines, key=lambda line: places[line.subject]))
