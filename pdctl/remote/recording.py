"""A transport that tells the journal what it executed, masked."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from pdctl.errors import DeadlineError, PdctlError, UnreachableError
from pdctl.transport.base import Transport
from pdctl.transport.command import Command, Result


@dataclass(frozen=True)
class Executed:
    """One command on a host. `rc` is None when there is no exit code: out of time, or never reached.

    `bytes` counts what went both ways, `at` is this machine's clock when it began.
    """

    host: str
    command: str
    rc: int | None
    seconds: float
    bytes: int
    at: float


class RecordingTransport:
    """Wraps any transport; `inner` is for what no run should list, such as a lock's heartbeat."""

    def __init__(self, inner: Transport, record: Callable[[Executed], None]) -> None:
        self.inner = inner
        self.host = inner.host
        self._record = record

    def run(self, command: Command, deadline: float) -> Result:
        at, begin = time.time(), time.monotonic()
        shown = f"sudo {command.masked()}" if command.root else command.masked()
        try:
            result = self.inner.run(command, deadline)
        except BaseException:
            self._note(shown, None, begin, at, len(command.stdin))
            raise
        size = len(command.stdin) + len(result.stdout) + len(result.stderr)
        self._note(shown, None if result.timed_out else result.rc, begin, at, size)
        return result

    def put(
        self, data: bytes, path: str, mode: int = 0o644, deadline: float = 30.0, root: bool = False
    ) -> None:
        at, begin = time.time(), time.monotonic()
        rc: int | None = None
        try:
            self.inner.put(data, path, mode, deadline, root)
            rc = 0
        except PdctlError as error:
            rc = _failed(error)
            raise
        finally:
            self._note(f"put {path} mode {mode:04o}", rc, begin, at, len(data))

    def get(self, path: str, limit: int = 16 << 20, deadline: float = 30.0, root: bool = False) -> bytes:
        at, begin = time.time(), time.monotonic()
        rc: int | None = None
        size = 0
        try:
            data = self.inner.get(path, limit, deadline, root)
            rc, size = 0, len(data)
            return data
        except PdctlError as error:
            rc = _failed(error)
            raise
        finally:
            self._note(f"get {path}", rc, begin, at, size)

    def dial(self, address: str, port: int, deadline: float = 10.0) -> socket.socket:
        return self.inner.dial(address, port, deadline)

    def close(self) -> None:
        self.inner.close()

    def _note(self, command: str, rc: int | None, begin: float, at: float, size: int) -> None:
        self._record(Executed(self.host, command, rc, time.monotonic() - begin, size, at))


def _failed(error: PdctlError) -> int | None:
    return None if isinstance(error, UnreachableError | DeadlineError) else 1
