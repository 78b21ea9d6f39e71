"""A sending thread of its own for a channel, so that no thread that decides ever waits for a peer to read."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from engine.core.framing import Channel

MAX_PENDING = 100_000


class Outbox:
    """Messages in the order they were put. A full or broken channel calls `broken` once, then drops."""

    def __init__(self, channel: Channel, name: str, broken: Callable[[str], None]) -> None:
        self._channel = channel
        self._queue: queue.SimpleQueue[object | None] = queue.SimpleQueue()
        self._broken = broken
        self._dead = False
        self._thread = threading.Thread(target=self._run, name=f"outbox-{name}", daemon=True)
        self._thread.start()

    def put(self, message: object) -> None:
        if self._dead:
            return
        if self._queue.qsize() > MAX_PENDING:
            self._fail("the other side reads nothing")
            return
        self._queue.put(message)

    @property
    def pending(self) -> int:
        return self._queue.qsize()

    def close(self, timeout: float) -> None:
        """Send what is queued, at most `timeout` seconds long."""
        self._queue.put(None)
        self._thread.join(timeout)
        self._dead = True

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                self._channel.send(message)
            except OSError as error:
                self._fail(str(error))
                return

    def _fail(self, why: str) -> None:
        if not self._dead:
            self._dead = True
            self._broken(why)
