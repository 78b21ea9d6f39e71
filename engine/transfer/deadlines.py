"""One heap of deadlines on one clock, served by its own thread.

A callback runs on that thread with no lock held and says whether the deadline took effect: a room that
ended in the same instant makes it a no-op, which is not counted as fired. One that finds it too early, for
its value was raised meanwhile, says when to come again. Whoever ends something by a deadline leaves the
line of `log_fired`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from engine.core.settings import BY_NAME

log = logging.getLogger("pdctl.engine.transfer")


Callback = Callable[[], bool | float]


def log_fired(
    code: str,
    name: str,
    value: float,
    age: float,
    peer: object = None,
    *,
    room: int | None = None,
    request: str | None = None,
    pages: int | None = None,
) -> None:
    """The one line of a deadline that fired: the code it ends with, whose it was, its variable and value."""
    given = (code, *("-" if word is None else word for word in (room, request)), age)
    rest = ("-" if word is None else word for word in (peer, pages))
    text = "%s room=%s request=%s age=%.1fs peer=%s pages=%s deadline=%s=%g"
    log.warning(text, *given, *rest, BY_NAME[name].env, value)


@dataclass(eq=False)
class _Entry:
    name: str
    at: float
    callback: Callback


class Deadlines:
    """`arm`, `rearm`, `cancel` from any thread; times are seconds of `clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _Entry] = {}
        self._heap: list[tuple[float, int, Hashable, _Entry]] = []
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._stopping = False
        self._fired: Counter[str] = Counter()
        self._late: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)

    def arm(self, key: Hashable, name: str, at: float, callback: Callback) -> None:
        """Call `callback` at `at` unless cancelled; an armed deadline of the same key is replaced."""
        with self._wake:
            self._push(key, _Entry(name, at, callback))

    def rearm(self, key: Hashable, at: float) -> bool:
        """Move an armed deadline; False when there is none."""
        with self._wake:
            entry = self._entries.get(key)
            if entry is None:
                return False
            self._push(key, _Entry(entry.name, at, entry.callback))
            return True

    def cancel(self, key: Hashable) -> None:
        """Forget it; a callback that already started still runs, so callbacks check their room's state."""
        with self._wake:
            self._entries.pop(key, None)
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._entries):
                self._heap = [item for item in self._heap if self._entries.get(item[2]) is item[3]]
                heapq.heapify(self._heap)

    def expired(self, code: str, name: str, value: float, age: float, peer: object) -> None:
        """Count and log a deadline that another loop enforced (the link's sockets, a rank's warm-up)."""
        with self._wake:
            self._fired[name] += 1
        log_fired(code, name, value, age, peer)

    def fired(self) -> dict[str, int]:
        with self._wake:
            return dict(self._fired)

    def latest(self) -> dict[str, float]:
        """Worst seconds between a deadline and its callback, by name."""
        with self._wake:
            return dict(self._late)

    def next_at(self) -> float | None:
        with self._wake:
            return self._peek()

    def run_due(self) -> int:
        """Run every callback that is due now; how many took effect. The thread's body, and a test's."""
        effects = 0
        while True:
            with self._wake:
                at = self._peek()
                if at is None or at > self._clock():
                    return effects
                _, _, key, entry = heapq.heappop(self._heap)
                del self._entries[key]
                late = self._clock() - at
            try:
                effect = entry.callback()
            except Exception:  # the others still have to fire
                log.exception("deadline_broken name=%s", entry.name)
                continue
            if isinstance(effect, float):
                with self._wake:
                    if key not in self._entries:
                        self._push(key, _Entry(entry.name, effect, entry.callback))
            elif effect:
                effects += 1
                with self._wake:
                    self._fired[entry.name] += 1
                    self._late[entry.name] = max(late, self._late.get(entry.name, 0.0))

    def _push(self, key: Hashable, entry: _Entry) -> None:
        self._entries[key] = entry
        heapq.heappush(self._heap, (entry.at, next(self._order), key, entry))
        self._wake.notify()

    def _peek(self) -> float | None:
        while self._heap and self._entries.get(self._heap[0][2]) is not self._heap[0][3]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _run(self) -> None:
        while True:
            self.run_due()
            with self._wake:
                if self._stopping:
                    return
                at = self._peek()
                wait = None if at is None else at - self._clock()
                if wait is None or wait > 0:
                    self._wake.wait(wait)
