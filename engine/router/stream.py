"""What one client has of its stream, over all engines that serve it in turn: pure data, no I/O.

Only whole events pass. The one that says how the answer ended waits for the end of the stream, so that an
engine lost in between leaves either a stream that can go on or one that is complete.
"""

from __future__ import annotations

import re
from array import array

import msgspec

from engine.core.errors import RequestError, status_of
from engine.http.errors import ERROR_MARK, ParamError
from engine.http.marks import take_mark

_BOUNDARY = re.compile(rb"\r?\n\r?\n")
_DONE = b"data: [DONE]"


def _error_of(event: bytes) -> RequestError:
    try:
        error = msgspec.json.decode(event.partition(b": ")[2])["error"]
        code, param = str(error["code"]), error.get("param")
        return ParamError(param, str(error["message"]), code, status=status_of(code))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return RequestError(
            "engine_failed", "The engine ended the stream with an error it did not name.", 502
        )


class Stream:
    """`tokens` are the ids behind what was passed on, `events` how many events that was.

    `error` is set by an error event, which does not pass; `complete` by the event that ends a stream.
    """

    def __init__(self) -> None:
        self.tokens = array("I")
        self.events = 0
        self.error: RequestError | None = None
        self.complete = False
        self._marked = True
        self._part = b""
        self._held: list[bytes] = []

    @property
    def resumable(self) -> bool:
        """Whether another engine can go on exactly where this stream is."""
        return self._marked and not self.complete

    def begin(self) -> None:
        """Another engine takes over: what the last one did not say to the end was never said."""
        self._part = b""
        self._held.clear()
        self.error = None

    def feed(self, data: bytes) -> bytes:
        """Stream bytes from an engine, cut anywhere; what to pass on of them now."""
        self._part += data
        out: list[bytes] = []
        while self.error is None and (boundary := _BOUNDARY.search(self._part)):
            event, self._part = self._part[: boundary.end()], self._part[boundary.end() :]
            out += self._take(event)
        self.events += sum(not event.startswith(_DONE) for event in out)
        return b"".join(out)

    def rest(self) -> bytes:
        """What is left to pass on where the engine ended its answer without the usual last event."""
        left = b"" if self.complete else b"".join([*self._held, self._part])
        self.begin()
        self.complete = True
        return left

    def _take(self, event: bytes) -> list[bytes]:
        if event.startswith(ERROR_MARK):
            self.error = _error_of(event)
            return []
        mark, event = take_mark(event)
        if event.startswith(_DONE):
            self.complete = True
            return [*self._held, event]
        if self._held or (mark is not None and mark.last):
            self._held.append(event)
            return []
        self._marked = self._marked and mark is not None
        self.tokens.extend(mark.tokens if mark else ())
        return [event]
