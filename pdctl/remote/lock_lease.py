"""The lock while a run holds it: a heartbeat over the transport, and whether the run may still go on.

A run that could not prove for STALE seconds that the lock is its own must not change anything more, because
another operator may have taken it over by then. Counted on a clock that goes on while the machine sleeps.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pdctl.errors import LockedError, PdctlError
from pdctl.remote.lock import STALE, FleetLock, HeldError, Holder, holder_for
from pdctl.remote.operator import me

BEAT = 5.0
# Between two tries of a run that waits for the lock, seconds.
RETRY = 1.0
# A step that begins when the last heartbeat is older than this asks first.
FRESH = 3 * BEAT

Say = Callable[[str], None]


def uptime() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """`over` is the dead holder from whom the lock was taken. `lost` says why it is no longer ours."""

    def __init__(
        self, lock: FleetLock, mine: Holder, over: Holder | None, say: Say, now: Callable[[], float] = uptime
    ) -> None:
        self.holder, self.over = mine, over
        self.lost = ""
        self._lock, self._say, self._now = lock, say, now
        self._proved = now()
        self._silent = False
        self._ended = threading.Event()
        self._one = threading.Lock()

    def check(self) -> None:
        """LockedError when the run must not go on; asks the control host only when it has to."""
        if not self.lost and self._now() - self._proved > FRESH:
            self.beat()
        if not self.lost and self._now() - self._proved > STALE:
            self._lose(f"{self._lock.host} could not be asked for {STALE:g} s who holds the lock")
        if self.lost:
            hint = "Look at `pdctl lock status` and `pdctl status` before you go on with `pdctl resume RUN`."
            raise LockedError("lock_lost", f"This run stops: {self.lost}.", hint)

    def beat(self) -> None:
        """One heartbeat; what is wrong is said once."""
        with self._one:
            asked = self._now()
            try:
                mine, other, problem = self._lock.beat(self.holder.id)
            except PdctlError as error:
                self._complain(error.message)
                return
            if self._ended.is_set():
                return
            if mine:
                self._proved = asked
                if problem:
                    self._complain(problem)
                elif self._silent:
                    self._silent = False
                    self._say(f"the lock on {self._lock.host} can be kept again")
            elif not self.lost:
                who = f"it is held by {other.words()}" if other else "somebody released it by force"
                self._lose(f"the fleet's lock was taken from it; {who}")

    def keep(self) -> None:
        """Beat until the lease ends or is lost."""
        while not self.lost and not self._ended.wait(BEAT):
            self.beat()

    def end(self) -> None:
        """Release; never raises, because it must not hide how the run ended."""
        self._ended.set()
        try:
            if not self._lock.release(self.holder.id) and not self.lost:
                self._say("the fleet's lock had been taken from this run")
        except PdctlError as error:
            self._say(f"the lock was not released: {error.message} In {STALE:g} s it counts as stale.")

    def _lose(self, why: str) -> None:
        self.lost = why
        self._say(f"lock lost: {why}")

    def _complain(self, problem: str) -> None:
        if not self._silent and not self._ended.is_set():
            self._silent = True
            self._say(f"the lock's heartbeat fails: {problem} In {STALE:g} s others may take it over.")


@contextmanager
def hold(lock: FleetLock, command: str, run: str, say: Say, wait: float = 0.0) -> Iterator[Lease]:
    """Hold the fleet until the block ends, however it ends. `wait` seconds for a living run, never for a
    person who holds the lock by hand. HeldError names the holder."""
    mine = holder_for(me(), secrets.token_hex(8), command, run)
    over = _take(lock, mine, say, wait)
    if over is not None:
        say(f"took over the lock of a run that is dead: {over.words()}")
    lease = Lease(lock, mine, over, say)
    threading.Thread(target=lease.keep, daemon=True, name="lock-heartbeat").start()
    try:
        yield lease
    finally:
        lease.end()


def _take(lock: FleetLock, mine: Holder, say: Say, wait: float) -> Holder | None:
    until = time.monotonic() + wait
    waited_for = ""
    while True:
        try:
            return lock.take(mine)
        except HeldError as error:
            if error.holder.manual or time.monotonic() >= until:
                raise
            if error.holder.id != waited_for:
                waited_for = error.holder.id
                say(f"{error.message} Waiting up to {until - time.monotonic():.0f} s.")
        time.sleep(min(RETRY, max(0.0, until - time.monotonic())))
