"""Time as the supervisor counts it: durations by the monotonic clock, dates by the wall clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """`now` is monotonic seconds and the only source of durations: setting the machine's time fires nothing.
    `wall` is Unix seconds, for people, files and quiet hours."""

    def now(self) -> float: ...

    def wall(self) -> float: ...


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
