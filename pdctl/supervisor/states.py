"""The states of a cell and of an engine, and every way between them; pure.

    UNKNOWN -> SERVING <-> SUSPECT -> ILL -> ACTING -> SETTLING -> SERVING

BLIND is a subject that cannot be judged from here, FLAPPING one that falls ill and mends again and again,
PERSON one that the supervisor has given up: nothing is done in these three. An event that has no row for a
state changes nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    UNKNOWN = "unknown"  # the supervisor has just begun, or the subject is new
    SERVING = "serving"
    SUSPECT = "suspect"  # a finding that is not yet old enough
    ILL = "ill"  # confirmed
    ACTING = "acting"  # an action is under way
    SETTLING = "settling"  # left to itself after an action, or well again for a short time only
    FLAPPING = "flapping"
    PERSON = "needs a person"
    BLIND = "cannot be judged"


class Event(StrEnum):
    WELL = "well"
    SICK = "a finding"
    CONFIRMED = "confirmed"
    BEGAN = "an action began"
    ENDED = "the action ended"
    CALM = "well for long enough"
    FLAPPED = "ill and well again too often"
    GAVE_UP = "given up"
    ATTENDED = "a person has looked after it"
    BLINDED = "not observable"


_S, _E = State, Event
TRANSITIONS: dict[tuple[State, Event], State] = {
    (_S.UNKNOWN, _E.WELL): _S.SERVING,
    (_S.UNKNOWN, _E.SICK): _S.SUSPECT,
    (_S.UNKNOWN, _E.BLINDED): _S.BLIND,
    (_S.SERVING, _E.SICK): _S.SUSPECT,
    (_S.SERVING, _E.BLINDED): _S.BLIND,
    (_S.SUSPECT, _E.WELL): _S.SERVING,
    (_S.SUSPECT, _E.CONFIRMED): _S.ILL,
    (_S.SUSPECT, _E.BLINDED): _S.BLIND,
    (_S.SUSPECT, _E.FLAPPED): _S.FLAPPING,
    (_S.SUSPECT, _E.GAVE_UP): _S.PERSON,
    (_S.ILL, _E.WELL): _S.SETTLING,
    (_S.ILL, _E.BEGAN): _S.ACTING,
    (_S.ILL, _E.BLINDED): _S.BLIND,
    (_S.ILL, _E.FLAPPED): _S.FLAPPING,
    (_S.ILL, _E.GAVE_UP): _S.PERSON,
    (_S.ACTING, _E.ENDED): _S.SETTLING,
    (_S.ACTING, _E.GAVE_UP): _S.PERSON,
    (_S.SETTLING, _E.CALM): _S.SERVING,
    (_S.SETTLING, _E.SICK): _S.SUSPECT,
    (_S.SETTLING, _E.BLINDED): _S.BLIND,
    (_S.SETTLING, _E.FLAPPED): _S.FLAPPING,
    (_S.SETTLING, _E.GAVE_UP): _S.PERSON,
    (_S.FLAPPING, _E.CALM): _S.SERVING,
    (_S.FLAPPING, _E.ATTENDED): _S.SETTLING,
    (_S.FLAPPING, _E.GAVE_UP): _S.PERSON,
    (_S.PERSON, _E.CALM): _S.SERVING,
    (_S.PERSON, _E.ATTENDED): _S.SETTLING,
    (_S.BLIND, _E.WELL): _S.SETTLING,
    (_S.BLIND, _E.SICK): _S.SUSPECT,
}

# Ill for less than this, seconds, is no fall: a busy machine answers late now and then.
BRIEF = 10.0
# Given up or flapping: nobody acts, and only a long calm or a person ends it.
RESTING = (State.PERSON, State.FLAPPING)
# In which an action may begin; in all others nothing is done.
MAY_ACT = frozenset({State.ILL})


@dataclass
class Machine:
    """One subject. `since` and every `now` are monotonic seconds; `flaps` falls in `window` are flapping."""

    flaps: int
    window: float
    state: State = State.UNKNOWN
    since: float = 0.0
    well_since: float | None = None
    _falls: deque[float] = field(default_factory=deque)
    _falling: bool = False

    def take(self, event: Event, now: float) -> bool:
        """Whether `event` changed the state."""
        was, was_well = self.state, self.well_since is not None
        if event is Event.WELL and not was_well:
            self.well_since = now
        elif event in (Event.SICK, Event.BLINDED):
            self.well_since = None
        elif event is Event.ATTENDED:
            self._falls.clear()
        following = TRANSITIONS.get((self.state, event))
        if following is not None:
            self.state, self.since = following, now
            # Ill all the while, as after an action that did not help, is no flapping.
            self._falling = following is State.SUSPECT and was_well
        elif event is Event.SICK and self._falling and now - self.since >= BRIEF:
            self._fall(now)
        return self.state is not was

    def _fall(self, now: float) -> None:
        """Count what has been more than an answer that came late."""
        self._falling = False
        self._falls.append(now)
        while now - self._falls[0] > self.window:
            self._falls.popleft()
        if len(self._falls) >= self.flaps:
            self.take(Event.FLAPPED, now)

    def calm(self, seconds: float, now: float) -> bool:
        """Whether it has been well for so long, look after look."""
        return self.well_since is not None and now - self.well_since >= seconds

    def unseen(self) -> None:
        """Nobody looked for a while: what lies between says nothing."""
        self.well_since = None
