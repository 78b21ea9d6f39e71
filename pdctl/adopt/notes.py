"""What adoption has to say about the lines it read, and values that it cannot know."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How a piece of a source was taken, best first.

    used: it is in the fleet file or the profile. idle: understood, and of no effect on the engine.
    left: understood, and not something that pdctl does. assumed: taken with a value that a source does not
    prove. open: not understood. missing: without it nothing can be written.
    """

    USED = "used"
    IDLE = "no effect"
    LEFT = "left out"
    ASSUMED = "assumed"
    OPEN = "not understood"
    MISSING = "missing"


@dataclass(frozen=True)
class Note:
    """`first` and `last` are lines of `file`, 0 where there are none; `answer` is a flag that settles it."""

    file: str
    first: int
    last: int
    grade: Grade
    text: str
    what: str
    answer: str = ""

    @property
    def where(self) -> str:
        if not self.first:
            return self.file
        return f"{self.file}:{self.first}" + (f"-{self.last}" if self.last > self.first else "")


@dataclass(frozen=True)
class Unknown:
    """In place of a text: what only a run could tell. `what` completes the sentence "TEXT …"."""

    text: str
    what: str
    file: str
    line: int
    answer: str


Value = str | Unknown
