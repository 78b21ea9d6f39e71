"""What the supervisor knows at this moment and no file holds: for its pages, metrics and health."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pdctl.supervisor.observation import Observation


@dataclass(frozen=True)
class Standing:
    """What the supervisor does now, as its loop says after every turn.

    `mode` is act or dry-run. `paused` says who paused it and until when, `waits` why it does not act now (a
    lock, another supervisor), `acts` what it is doing; each is "" when not. `cells` is cell -> state.
    """

    mode: str = ""
    paused: str = ""
    waits: str = ""
    acts: str = ""
    cells: Mapping[str, str] = field(default_factory=dict)


class Live:
    """Set by the loop, read by the threads that serve. `stale` is after how many seconds without a look the
    supervisor itself is unwell.
    """

    def __init__(self, stale: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.stale = stale
        self._monotonic = monotonic
        self._began = monotonic()
        self._changed = threading.Condition()
        self._look: Observation | None = None
        self._standing = Standing()
        self._version = 0
        self.troubles: dict[str, str] = {}
        """What is wrong with the supervisor itself, as sentences by part; replaced whole, never changed."""

    @property
    def look(self) -> Observation | None:
        return self._look

    @look.setter
    def look(self, look: Observation) -> None:
        self._look = look
        self._tell()

    @property
    def standing(self) -> Standing:
        return self._standing

    @standing.setter
    def standing(self, standing: Standing) -> None:
        if standing != self._standing:
            self._standing = standing
            self._tell()

    @property
    def version(self) -> int:
        """Changes with everything that a page shows."""
        return self._version

    @property
    def age(self) -> float:
        """Seconds since the newest look began, or since this process began to look."""
        return self._monotonic() - (self._look.monotonic if self._look else self._began)

    @property
    def unwell(self) -> str:
        """Why /healthz is not 200; "" when it is."""
        return "" if self.age <= self.stale else f"no look ended for {self.age:.0f} s"

    def _tell(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def wait(self, version: int, timeout: float) -> int:
        """The version once it is another than `version`, or after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version, timeout)
            return self._version
