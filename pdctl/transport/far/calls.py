"""Calls to the program at the far end (program.py): many at once over one stream of bytes."""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

# A peer that says nothing for so long is gone: it bounds a partition, which nobody announces.
SILENCE = 15.0
PING_EVERY = 3.0
# How much later than its deadline a call may report its end: when all is quiet, and while others are heard.
_GRACE, _PATIENCE = 5.0, 60.0
_BODY = 1 << 16
# What an SSH channel raises on a lost connection is not always an OSError.
_BROKEN = (OSError, EOFError)
HEAD = struct.Struct("!IcI")


class Stream(Protocol):
    """What a socket and an SSH channel have in common; `recv` gives b"" at the end."""

    def settimeout(self, value: float | None, /) -> None: ...

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Lost(Exception):
    """The connection is gone; the text says how."""


@dataclass
class Answer:
    """What one call said: its two outputs and the document it ended with."""

    out: list[bytes] = field(default_factory=list)
    err: list[bytes] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    lost: str = ""
    done: threading.Event = field(default_factory=threading.Event)


class Calls:
    """Thread-safe. Raises Lost from every call that is under way when the connection goes.

    `abort` ends the stream without waiting for anything: closing it may want to send, and that may hang.
    """

    def __init__(self, stream: Stream, hello: dict[str, Any], rest: bytes, abort: Callable[[], None]) -> None:
        self.uid: int = hello["uid"]
        self._stream = stream
        self._abort = abort
        stream.settimeout(SILENCE)
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Answer] = {}
        self._lost = ""
        self._heard = time.monotonic()
        threading.Thread(target=self._read, args=(rest,), daemon=True, name="pdctl-far").start()

    @property
    def alive(self) -> bool:
        return not self._lost

    def call(self, spec: dict[str, Any], body: bytes, deadline: float) -> Answer:
        """`deadline` seconds until the far end ends it; Lost when it is then still not heard of."""
        number, answer = next(self._numbers), Answer()
        began = time.monotonic()
        self._waiting[number] = answer
        try:
            self._ask(number, {**spec, "size": len(body), "deadline": deadline}, body, began + deadline)
            self._await(answer, began, began + deadline)
        except BaseException:
            self._end(number)
            raise
        finally:
            self._waiting.pop(number, None)
        return answer

    def close(self) -> None:
        self._give_up("it was closed", self._abort)

    def _ask(self, number: int, spec: dict[str, Any], body: bytes, end: float) -> None:
        self._send(number, b"C", json.dumps(spec).encode())
        for start in range(0, len(body), _BODY):
            if time.monotonic() > end:
                self._send(number, b"K")
                return
            self._send(number, b"D", body[start : start + _BODY])

    def _await(self, answer: Answer, began: float, end: float) -> None:
        while not answer.done.wait(PING_EVERY):
            now = time.monotonic()
            quiet = now - max(self._heard, began)
            if quiet > SILENCE:
                self._give_up(f"nothing was heard for {SILENCE:g} s", self._abort)
            elif now > end + _PATIENCE or (now > end + _GRACE and quiet > _GRACE):
                self._give_up("the end of a command was not reported", self._abort)
            else:
                self._send(0, b"P")
        if answer.lost:
            raise Lost(answer.lost)

    def _end(self, number: int) -> None:
        try:
            self._send(number, b"K")
        except Lost:
            pass

    def _send(self, number: int, kind: bytes, data: bytes = b"") -> None:
        if not self._sending.acquire(timeout=SILENCE):
            self._give_up("nothing can be sent", self._abort)
            raise Lost(self._lost)
        try:
            if self._lost:
                raise Lost(self._lost)
            self._stream.sendall(HEAD.pack(number, kind, len(data)) + data)
        except _BROKEN as error:
            self._give_up(str(error) or "nothing can be sent", self._abort)
            raise Lost(self._lost) from None
        except BaseException:
            # Part of a frame may be out: what follows would be read as the rest of it.
            self._give_up("interrupted", self._abort)
            raise
        finally:
            self._sending.release()

    def _read(self, buffer: bytes) -> None:
        pending = bytearray(buffer)
        why = "it ended"
        try:
            while True:
                while len(pending) >= HEAD.size:
                    number, kind, length = HEAD.unpack_from(pending)
                    if len(pending) < HEAD.size + length:
                        break
                    self._heard = time.monotonic()
                    self._take(number, kind, bytes(pending[HEAD.size : HEAD.size + length]))
                    del pending[: HEAD.size + length]
                try:
                    data = self._stream.recv(1 << 18)
                except TimeoutError:
                    continue
                if not data:
                    break
                self._heard = time.monotonic()
                pending += data
        except _BROKEN as error:
            why = str(error) or why
        self._give_up(why, self._stream.close)

    def _take(self, number: int, kind: bytes, data: bytes) -> None:
        answer = self._waiting.get(number)
        if answer is None:
            return
        if kind == b"O":
            answer.out.append(data)
        elif kind == b"E":
            answer.err.append(data)
        elif kind == b"R":
            answer.end = json.loads(data)
            answer.done.set()

    def _give_up(self, why: str, end: Callable[[], None]) -> None:
        self._lost = self._lost or why
        for answer in list(self._waiting.values()):
            if not answer.done.is_set():
                answer.lost = self._lost
                answer.done.set()
        with contextlib.suppress(*_BROKEN):
            end()
