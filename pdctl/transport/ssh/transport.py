"""The transport over SSH: opened at its first call, shared by all threads, opened again when it was lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import paramiko

from pdctl.errors import ConfigError, PdctlError, UnreachableError
from pdctl.fleet.model import Host
from pdctl.transport.command import Command, Result
from pdctl.transport.far import verbs
from pdctl.transport.far.calls import Calls, Lost
from pdctl.transport.ssh import forward
from pdctl.transport.ssh.begin import begin
from pdctl.transport.ssh.config import Target, target
from pdctl.transport.ssh.connect import Connection, connect

# Long enough for a call that only looks the connection up; one that is connecting is not waited for.
_CLOSE = 0.5


class SshTransport:
    def __init__(self, host: Host) -> None:
        self.host = host.name
        self._spec = host
        self._target: Target | None = None
        self._opening = threading.Lock()
        self._closed = False
        self._failed: tuple[float, PdctlError] | None = None
        self._connection: Connection | None = None
        self._calls: dict[bool, Calls] = {}

    def run(self, command: Command, deadline: float) -> Result:
        with self._far(deadline, command.root, f"running {command.masked()}") as (calls, left):
            return verbs.run(calls, command, left)

    def put(
        self, data: bytes, path: str, mode: int = 0o644, deadline: float = 30.0, root: bool = False
    ) -> None:
        with self._far(deadline, root, f"writing {path}") as (calls, left):
            verbs.put(calls, self.host, data, path, mode, left)

    def get(self, path: str, limit: int = 16 << 20, deadline: float = 30.0, root: bool = False) -> bytes:
        with self._far(deadline, root, f"reading {path}") as (calls, left):
            return verbs.get(calls, self.host, path, limit, left)

    def dial(self, address: str, port: int, deadline: float = 10.0) -> socket.socket:
        end = time.monotonic() + deadline
        with self._opened(deadline) as connection:
            transport = connection.transport
        left = _left(end)
        try:
            where = ("direct-tcpip", (address, port), ("127.0.0.1", 0))
            return forward.bridge(transport.open_channel(*where, timeout=left))
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._undialled(address, port, end, str(error)) from None

    def close(self) -> None:
        """Does not wait for a host that hangs: whoever is connecting to it closes what comes of it."""
        self._closed = True
        if self._opening.acquire(timeout=_CLOSE):
            self._drop()
            self._opening.release()

    def _undialled(self, address: str, port: int, end: float, said: str) -> OSError:
        """sshd says little about why it could not; the program there tries the same and says it all."""
        where, left = f"{address} port {port} from {self.host}", end - time.monotonic()
        if left <= 0:
            return TimeoutError(f"{where}: no answer in time")
        with self._far(left, False, f"connecting to {address} port {port}") as (calls, left):
            error = verbs.refusal(calls, address, port, left)
        if error is None:
            return OSError(f"{where}: sshd there does not forward ({said}): AllowTcpForwarding must be yes")
        return type(error)(error.errno, f"{where}: {error.strerror}")

    @contextmanager
    def _far(self, deadline: float, root: bool, doing: str) -> Iterator[tuple[Calls, float]]:
        """The program at the far end, as the login user or as root, and how many seconds are left."""
        end = time.monotonic() + deadline
        with self._opened(deadline) as connection:
            calls = self._begin(connection, False, end)
            if root and calls.uid != 0:
                calls = self._begin(connection, True, end)
        try:
            yield calls, _left(end)
        except Lost as lost:
            why = str(lost) if connection.alive else f"it broke off ({lost})"
            raise UnreachableError(
                "connection_lost",
                f"The connection to {self.host} was lost while {doing}: {why}.",
                "The host ends the command by itself; look at what is true there before it is repeated.",
            ) from None

    @contextmanager
    def _opened(self, deadline: float) -> Iterator[Connection]:
        """The connection; nobody else opens one meanwhile. UnreachableError when there is none.

        Those who waited for an attempt that failed share its error: one dead host costs one timeout.
        """
        began = time.monotonic()
        if not self._opening.acquire(timeout=deadline):
            raise UnreachableError("ssh_timeout", f"{self.host} was not reached in {deadline:g} s.")
        try:
            if self._connection and not self._connection.alive:
                self._drop()
            if self._connection is None:
                if self._failed and self._failed[0] > began:
                    raise self._failed[1]
                self._connection = self._connect(deadline)
            yield self._connection
        finally:
            if self._closed:
                self._drop()
            self._opening.release()

    def _connect(self, deadline: float) -> Connection:
        try:
            self._target = self._target or target(self._spec)
            return connect(self._target, self.host, deadline)
        except PdctlError as error:
            self._failed = (time.monotonic(), error)
            raise

    def _begin(self, connection: Connection, root: bool, end: float) -> Calls:
        """The system's own Python where it will do: what the fleet file names may be a wrapper."""
        found = self._calls.get(root)
        if found is None or not found.alive:
            where, named = f"{self.host} ({self._target})", self._spec.spec.python
            own = [named] if named else []
            try:
                found = begin(connection, where, ["python3", *own], root, _left(end))
            except ConfigError as error:
                if error.code != "old_python" or not own:
                    raise
                found = begin(connection, where, own, root, _left(end))
            self._calls[root] = found
        return found

    def _drop(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None
        for calls in self._calls.values():
            calls.close()
        self._calls.clear()


def _left(end: float) -> float:
    return max(0.05, end - time.monotonic())
