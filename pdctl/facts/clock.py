"""How far a host's clock is from this machine's, with the error that one round trip leaves.

The host read its clock somewhere between question and answer, so the true offset lies within half the
round trip of the middle. Nothing is assumed of how fast either way is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdctl.facts.ask import Answers
from pdctl.facts.missing import Missing

# Logs of two hosts can be read side by side below the first; leases and tokens go wrong beyond the second.
SKEW, BROKEN = 1.0, 30.0
OURS = "this machine"


@dataclass(frozen=True)
class Clock:
    """`offset` is the host's clock minus ours; the truth is within `error` of it (seconds)."""

    offset: float
    error: float


def parse(answers: Answers) -> Clock | Missing:
    at = answers.of("clock")
    return at if isinstance(at, Missing) else measured(answers.sent, answers.seconds, float(at))


def measured(sent: float, seconds: float, theirs: float) -> Clock:
    """From one round trip: when it began here, how long it took, what the host's clock said meanwhile."""
    return Clock(theirs - (sent + seconds / 2), seconds / 2)


def best(clocks: Iterable[Clock]) -> Clock:
    """The one that says most: the shortest round trip."""
    return min(clocks, key=lambda c: c.error)


def apart(one: Clock, other: Clock) -> Clock:
    """How far two hosts' clocks are from each other."""
    return Clock(one.offset - other.offset, one.error + other.error)


def at_least(clock: Clock) -> float:
    """The skew that is certain, seconds; 0 when the clocks may agree."""
    return max(0.0, abs(clock.offset) - clock.error)


def spread(hosts: Mapping[str, Clock]) -> tuple[str, dict[str, Clock]]:
    """The clock that the others are nearest to, and how far each is from it; this machine's is among them,
    and is the measure when it is as good as any."""
    read = {OURS: Clock(0.0, 0.0), **hosts}

    def distance(name: str) -> float:
        return round(sum(abs(apart(read[name], other).offset) for other in read.values()), 1)

    middle = min(read, key=lambda name: (distance(name), name != OURS))
    return middle, {name: apart(mine, read[middle]) for name, mine in read.items()}
