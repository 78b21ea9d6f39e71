"""Runs where commands run, for the life of one connection; needs nothing there but Python 3.9.

pdctl sends this file and then frames, both ways: call (4 bytes), kind (1), length (4), data.

to the host   C  a call: JSON {"op", "size", "deadline", …}, followed by `size` bytes in D frames
              D  some of them
              K  end that call
              P  ping
from there    O, E  output of a call, or a file
              R  its end: JSON
              P  pong

Whatever it started ends with the connection: when its input ends, and when commands run and nothing has
come for as many seconds as its second argument says, it kills every process group that it began.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, BinaryIO

HEAD = struct.Struct("!IcI")
CHUNK = 65536
# After the group is killed its pipes close at once, unless a process left the group and kept them open.
REAP = 2.0
SLICE = 0.2


class Out:
    """Frames to pdctl; whole ones, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def send(self, call: int, kind: bytes, data: bytes = b"") -> None:
        whole = memoryview(HEAD.pack(call, kind, len(data)) + data)
        with self._lock:
            try:
                while whole:
                    whole = whole[os.write(1, whole) :]
            except OSError:
                # Nobody is there any more; the commands must not go on without them.
                end_all()


class Call:
    """One call. Its body comes first, into memory that the child reads as a file, and then it runs."""

    def __init__(self, number: int, spec: dict[str, Any], out: Out) -> None:
        self.number, self.spec, self.out = number, spec, out
        self.missing = spec["size"]
        self.body = os.memfd_create("pdctl") if self.missing else os.open(os.devnull, os.O_RDONLY)
        self.end = time.monotonic() + spec["deadline"]
        self.child: subprocess.Popen[bytes] | None = None
        self.temporary = ""
        self._woken, self._wake = os.pipe()
        self._open = threading.Lock()

    def feed(self, data: bytes) -> None:
        self.missing -= len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.body, rest) :]

    def drop(self) -> None:
        """Of what never began, or has ended."""
        with self._open:
            for fd in (self.body, self._woken, self._wake):
                os.close(fd)
            self._wake = -1

    def start(self) -> None:
        if self.spec["size"]:
            os.lseek(self.body, 0, os.SEEK_SET)
        threading.Thread(target=self._work, daemon=True).start()

    def cancel(self) -> None:
        """Ends it as its deadline does."""
        with self._open:
            if self._wake >= 0:
                os.write(self._wake, b"k")

    def kill(self) -> None:
        """Only while the child is not reaped, so the number cannot be another's by now."""
        child = self.child
        if child is not None and child.returncode is None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        if self.temporary:
            try:
                os.unlink(self.temporary)
            except OSError:
                pass

    def _work(self) -> None:
        try:
            result = getattr(self, "op_" + self.spec["op"])()
        except Exception as error:  # noqa: BLE001 - whoever waits for the end of the call is told
            said = getattr(error, "strerror", None) or str(error)
            result = {"error": said, "errno": getattr(error, "errno", None), "kind": type(error).__name__}
        live.pop(self.number, None)
        self.drop()
        self.out.send(self.number, b"R", json.dumps(result).encode())

    def op_run(self) -> dict[str, Any]:
        argv, (out, theirs_out), (err, theirs_err) = self.spec["argv"], os.pipe(), os.pipe()
        try:
            with spawning:
                self.child = subprocess.Popen(
                    argv,
                    env={**os.environ, **self.spec["env"]},
                    cwd=self.spec["cwd"],
                    stdin=self.body,
                    stdout=theirs_out,
                    stderr=theirs_err,
                    start_new_session=True,
                )
        except OSError as error:
            self.out.send(self.number, b"E", f"{error.filename or argv[0]}: {error.strerror}".encode())
            return {"rc": 127, "timed_out": False}
        finally:
            os.close(theirs_out)
            os.close(theirs_err)
        try:
            in_time = self._relay({out: b"O", err: b"E"}) and self._reap(self.child)
        finally:
            os.close(out)
            os.close(err)
        try:
            return {"rc": self.child.wait(REAP), "timed_out": not in_time}
        except subprocess.TimeoutExpired:
            # It hangs in the kernel, where no signal reaches it.
            return {"rc": -signal.SIGKILL, "timed_out": True}

    def _relay(self, streams: dict[int, bytes]) -> bool:
        """Both outputs until they end; False when the call had to be ended first."""
        poll, in_time = select.poll(), True
        for fd in (*streams, self._woken):
            poll.register(fd, select.POLLIN)
        while streams:
            ready = poll.poll(max(0.0, self.end - time.monotonic()) * 1000)
            if not ready or any(fd == self._woken for fd, _ in ready):
                if not in_time:
                    break
                in_time, self.end = False, time.monotonic() + REAP
                poll.unregister(self._woken)
                self.kill()
                continue
            for fd, _ in ready:
                data = os.read(fd, CHUNK)
                if data:
                    self.out.send(self.number, streams[fd], data)
                else:
                    poll.unregister(fd)
                    del streams[fd]
        return in_time

    def _reap(self, child: subprocess.Popen[bytes]) -> bool:
        """Its end; False when it had closed its outputs and went on past the deadline."""
        while True:
            try:
                child.wait(SLICE)
                return True
            except subprocess.TimeoutExpired:
                if self._overdue():
                    self.kill()
                    return False

    def _overdue(self) -> bool:
        return time.monotonic() > self.end or bool(select.select([self._woken], [], [], 0)[0])

    def op_put(self) -> dict[str, Any]:
        path, mode = self.spec["path"], self.spec["mode"]
        folder = os.path.dirname(path) or "."
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, self.temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
        try:
            try:
                os.fchmod(fd, mode)
                left = self.spec["size"]
                while left:
                    left -= os.sendfile(fd, self.body, None, left)
                os.fsync(fd)
            finally:
                os.close(fd)
            if self._overdue():
                os.unlink(self.temporary)
                return {"timed_out": True}
            os.replace(self.temporary, path)
        except BaseException:
            if os.path.exists(self.temporary):
                os.unlink(self.temporary)
            raise
        finally:
            self.temporary = ""
        return {}

    def op_get(self) -> dict[str, Any]:
        left = self.spec["limit"]
        with open(self.spec["path"], "rb", buffering=0) as file:
            while left and not self._overdue():
                data = file.read(min(CHUNK, left))
                if not data:
                    break
                left -= len(data)
                self.out.send(self.number, b"O", data)
        return {"timed_out": self._overdue()}

    def op_connect(self) -> dict[str, Any]:
        where = (self.spec["address"], self.spec["port"])
        socket.create_connection(where, max(0.01, self.end - time.monotonic())).close()
        return {}


live: dict[int, Call] = {}
heard = [time.monotonic()]
# Held while a child is born, so that none is missed by the end of everything.
spawning = threading.Lock()


def end_all() -> None:
    spawning.acquire(timeout=REAP)
    for call in list(live.values()):
        call.kill()
    os._exit(0)


def watch(silence: float) -> None:
    """A lost peer may never end our input: no sign of it while commands run means that it is gone."""
    while True:
        time.sleep(min(1.0, silence / 4))
        if not live:
            heard[0] = time.monotonic()
        elif time.monotonic() - heard[0] > silence:
            end_all()


def serve(stream: BinaryIO, nonce: str, silence: float) -> None:
    out = Out()
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, lambda *_: end_all())
    os.write(1, b"\0" + nonce.encode() + b"\n")
    out.send(0, b"R", json.dumps({"uid": os.geteuid()}).encode())
    threading.Thread(target=watch, args=(silence,), daemon=True).start()
    coming: dict[int, Call] = {}
    while True:
        head = stream.read(HEAD.size)
        if len(head) < HEAD.size:
            end_all()
        number, kind, length = HEAD.unpack(head)
        data = stream.read(length)
        if len(data) < length:
            end_all()
        heard[0] = time.monotonic()
        if kind == b"P":
            out.send(0, b"P")
        elif kind == b"K":
            if number in coming:
                coming.pop(number).drop()
                out.send(number, b"R", json.dumps({"rc": -9, "timed_out": True}).encode())
            elif number in live:
                live[number].cancel()
        else:
            if kind == b"C":
                coming[number] = Call(number, json.loads(data), out)
            elif number in coming:
                coming[number].feed(data)
                # A slow link is no silence: each piece that arrives is a sign of life for both ends.
                out.send(0, b"P")
            if number in coming and not coming[number].missing:
                call = live[number] = coming.pop(number)
                call.start()


if __name__ == "__main__":
    try:
        serve(sys.stdin.buffer, sys.argv[1], float(sys.argv[2]))
    except OSError:
        end_all()
