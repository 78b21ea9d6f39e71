"""One TCP connection between two leaders, as the link's loop sees it."""

from __future__ import annotations

import asyncio
import socket
from collections import deque

from engine.core.errors import ConfigError, Exit
from engine.transfer.handshake import Peer
from engine.transfer.messages import Body, Envelope, Frame, ProtocolError, Splitter, encode

# A stranger may make us buffer this much; an authenticated peer MAX_FRAME.
STRANGER_FRAME = 1 << 20
MAX_STRANGERS = 64
WRITE_LIMIT = 64 << 20


def said(error: Exception) -> str:
    """For people and for clients: what the system said, without what a library made of it."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class Connection:
    """Frames over one socket. Used on the loop's thread only, but for reading `last_heard` and `up`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, now: float) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = Splitter(STRANGER_FRAME)
        self._frames: deque[Frame] = deque()
        self.peer: Peer | None = None
        self.opened_at = self.last_heard = self.last_ping = now
        self.ours_ready = self.theirs_ready = self.up = self.dropped = False
        self.me = ""
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def remote(self) -> str:
        name = self._writer.get_extra_info("peername") or ("?", 0)
        return f"{name[0]}:{name[1]}"

    def trust(self, peer: Peer, limit: int, me: str) -> None:
        """The other side is authenticated: `me` is our incarnation for envelopes."""
        self.peer, self._splitter.limit, self.me = peer, limit, me

    async def receive(self) -> Frame:
        """The next frame; ConnectionError at the end of the stream, ProtocolError on bytes not ours."""
        while not self._frames:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionError("the connection was closed")
            self.last_heard = asyncio.get_running_loop().time()
            self._frames.extend(self._splitter.feed(data))
        return self._frames.popleft()

    def send(self, frame: Frame) -> None:
        """Queue a frame; ProtocolError when the peer has stopped reading."""
        if self.dropped:
            return
        self._writer.write(encode(frame))
        if self._writer.transport.get_write_buffer_size() > WRITE_LIMIT:
            raise ProtocolError("the peer does not read")

    def say(self, body: Body) -> None:
        """Send a body in an envelope to the authenticated peer."""
        if self.peer is not None:
            self.send(Envelope(self.me, self.peer.key.incarnation, body))

    def close(self) -> None:
        """Close once what was sent has left (a Refuse must arrive)."""
        self._writer.close()

    @property
    def closing(self) -> bool:
        return self._writer.is_closing()

    def abort(self) -> None:
        self._writer.transport.abort()


class Strangers:
    """The accepted connections that have not said who they are; the oldest gives way to a new one."""

    def __init__(self) -> None:
        self._waiting: deque[Connection] = deque()

    def admit(self, conn: Connection) -> Connection:
        self._waiting = deque(c for c in self._waiting if c.peer is None and not c.closing)
        self._waiting.append(conn)
        if len(self._waiting) > MAX_STRANGERS:
            self._waiting.popleft().abort()
        return conn


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; ConfigError when the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        problem = ConfigError("port_in_use", f"Cannot listen on {host}:{port}: {error.strerror}.")
        problem.exit = Exit.PORT_IN_USE
        raise problem from None
    sock.listen(128)
    return sock
