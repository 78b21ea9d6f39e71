"""The transport for this machine: subprocesses in their own process group, files written atomically.

What somebody who is not root wants done as root goes through the far program behind sudo.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pdctl.errors import ConfigError, PdctlError, UnreachableError
from pdctl.transport import sudo
from pdctl.transport.command import Command, Result
from pdctl.transport.far import verbs
from pdctl.transport.far.calls import Calls, Lost

# After the group is killed its pipes close at once, unless a process left the group and kept them open.
_REAP = 2.0


class LocalTransport:
    def __init__(self, host: str) -> None:
        self.host = host
        self._root: Calls | None = None
        self._opening = threading.Lock()

    def run(self, command: Command, deadline: float) -> Result:
        if command.root and os.geteuid():
            with self._as_root(f"running {command.masked()}") as calls:
                return verbs.run(calls, command, deadline)
        started = time.monotonic()
        try:
            child = subprocess.Popen(
                command.raw(),
                env={**os.environ, **command.raw_env()},
                cwd=command.cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            said = f"{error.filename or command.raw()[0]}: {error.strerror}"
            return Result(127, b"", said.encode(), time.monotonic() - started)
        timed_out = False
        try:
            out, err = child.communicate(command.stdin, timeout=deadline)
        except subprocess.TimeoutExpired:
            timed_out = True
            out, err = _kill(child)
        except BaseException:
            _kill(child)
            raise
        return Result(child.returncode, out, err, time.monotonic() - started, timed_out)

    def put(
        self, data: bytes, path: str, mode: int = 0o644, deadline: float = 30.0, root: bool = False
    ) -> None:
        if root and os.geteuid():
            with self._as_root(f"writing {path}") as calls:
                return verbs.put(calls, self.host, data, path, mode, deadline)
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(fd, "wb") as file:
                    os.fchmod(fd, mode)
                    file.write(data)
                    file.flush()
                    os.fsync(fd)
                os.replace(temporary, target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            message = f"{path} cannot be written on {self.host}: {error.strerror}."
            raise ConfigError("cannot_write", message) from None

    def get(self, path: str, limit: int = 16 << 20, deadline: float = 30.0, root: bool = False) -> bytes:
        if root and os.geteuid():
            with self._as_root(f"reading {path}") as calls:
                return verbs.get(calls, self.host, path, limit, deadline)
        try:
            with open(path, "rb") as file:
                return file.read(limit)
        except FileNotFoundError:
            raise PdctlError("no_file", f"There is no {path} on {self.host}.") from None
        except OSError as error:
            message = f"{path} cannot be read on {self.host}: {error.strerror}."
            raise ConfigError("cannot_read", message) from None

    def dial(self, address: str, port: int, deadline: float = 10.0) -> socket.socket:
        return socket.create_connection((address, port), deadline)

    def close(self) -> None:
        with self._opening:
            if self._root:
                self._root.close()
                self._root = None

    @contextmanager
    def _as_root(self, doing: str) -> Iterator[Calls]:
        with self._opening:
            if self._root is None or not self._root.alive:
                self._root = sudo.begin(self.host)
            calls = self._root
        try:
            yield calls
        except Lost as lost:
            message = f"What ran as root on {self.host} ended while {doing}: {lost}."
            raise UnreachableError("connection_lost", message) from None


def _kill(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """End the whole group and collect what it had said."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        return child.communicate(timeout=_REAP)
    except subprocess.TimeoutExpired as left:
        return left.stdout or b"", left.stderr or b""
