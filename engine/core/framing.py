"""Length-prefixed msgpack frames over a connected stream socket, for the processes of one engine.

Frame: 4 bytes big-endian length, then the msgpack document. A frame past MAX_FRAME, or a stream that
ends inside one, is a ConnectionError: the other side is dead or not ours.
"""

from __future__ import annotations

import socket
import struct
import threading

import msgspec

MAX_FRAME = 64 << 20
_HEAD = struct.Struct(">I")


class Channel:
    """Blocking frames: any number of sending threads, one receiving thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, message: object) -> None:
        """Send one frame whole; ConnectionError or OSError when the other side is gone."""
        body = self._encoder.encode(message)
        with self._lock:
            self._sock.sendall(_HEAD.pack(len(body)) + body)

    def receive(self) -> bytes:
        """The next frame's body; ConnectionError at the end of the stream."""
        (size,) = _HEAD.unpack(self._exactly(4))
        if size > MAX_FRAME:
            raise ConnectionError(f"frame of {size} bytes is past the limit of {MAX_FRAME}")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            got = self._sock.recv_into(view)
            if not got:
                raise ConnectionError("the other side closed the channel")
            view = view[got:]
        return bytes(buffer)

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already gone: closing is what was wanted
        self._sock.close()
