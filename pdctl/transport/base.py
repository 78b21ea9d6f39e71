"""The one interface to a host. Nothing above it may know which transport it talks to."""

from __future__ import annotations

import socket
from typing import Protocol

from pdctl.errors import DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.transport.command import Command, Result


class Transport(Protocol):
    """Deadlines are seconds from the call. A host that cannot be asked raises UnreachableError.

    `run` never raises for a command's own failure: look at `rc` and `timed_out`. At the deadline the
    command's whole process group on the host is ended, also when the connection is lost. `put` is atomic: a
    reader sees the old file or the new one; missing folders are made 0700. `get` raises
    PdctlError("no_file") for a missing file. `root` is as in Command. `dial` is a connected stream socket to
    an address as the host reaches it; it raises what a plain connect raises (ConnectionRefusedError,
    TimeoutError, OSError).
    """

    host: str

    def run(self, command: Command, deadline: float) -> Result: ...

    def put(
        self, data: bytes, path: str, mode: int = 0o644, deadline: float = 30.0, root: bool = False
    ) -> None: ...

    def get(self, path: str, limit: int = 16 << 20, deadline: float = 30.0, root: bool = False) -> bytes: ...

    def dial(self, address: str, port: int, deadline: float = 10.0) -> socket.socket: ...

    def close(self) -> None: ...


def checked(transport: Transport, command: Command, deadline: float, what: str) -> Result:
    """Run and insist on rc 0; the error names host, step, command, exit code and what it said."""
    result = transport.run(command, deadline)
    where = f"{what} on {transport.host}"
    details = [f"command: {command.masked()}", *result.tail()]
    if result.timed_out:
        raise DeadlineError("command_timeout", f"{where} did not end in {deadline:g} s.", details=details)
    if result.rc != 0:
        message = f"{where} failed with exit code {result.rc}."
        raise PdctlError("command_failed", message, exit=Exit.PARTIAL, details=details)
    return result
