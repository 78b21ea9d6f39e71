"""HTTP/1.1 to engines: one request a connection at a time, and a connection that is through is kept.

A general client looks through its whole pool at every request and answer; here a leg costs what it sends.
"""

from __future__ import annotations

import asyncio
import functools
import select
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import h11

CONNECT_DEADLINE = 5.0
# Shorter than any server of ours keeps an idle connection (75 s), so that this side closes first.
KEEP = 20.0
_READ = 1 << 16
# A host that vanished closes no connection; the kernel asks after 5 s of silence and gives up after 6 more.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class NoConnection(Exception):
    """Nothing was sent; the text says why."""


class Broken(Exception):
    """The connection ended before the answer did, or what came is not HTTP."""


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@functools.lru_cache(1024)
def _place(url: str) -> tuple[str, int, bool, bytes]:
    """Host, port, whether TLS, and the Host header of http(s)://host:port."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0, parts.scheme == "https", parts.netloc.encode("ascii")


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)
        self._socket = writer.get_extra_info("socket")
        self.expiry: asyncio.TimerHandle | None = None
        for option in _SOCKET_OPTIONS:
            self._socket.setsockopt(*option)

    async def send(self, target: str, headers: list[tuple[bytes, bytes]], content: bytes) -> None:
        request = h11.Request(method="POST", target=target, headers=headers)
        parts = (request, h11.Data(data=content), h11.EndOfMessage())
        self._writer.write(b"".join(self._http.send(part) or b"" for part in parts))
        await self._writer.drain()

    async def head(self) -> h11.Response:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_READ))
            elif isinstance(event, h11.Response):
                return event
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionError("the connection was closed")

    async def body(self) -> AsyncIterator[bytes]:
        """Each time all that has come; the answer ends where this does."""
        ready: list[bytes] = []
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Data):
                ready.append(bytes(event.data))
                continue
            if ready:
                yield b"".join(ready)
                ready.clear()
            if event is not h11.NEED_DATA:
                return
            self._http.receive_data(await self._reader.read(_READ))

    def again(self) -> bool:
        """Whether the exchange is through and another may follow on this connection."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def quiet(self) -> bool:
        """Whether the other side has neither closed it nor said a word since."""
        if self._writer.is_closing() or self._reader.at_eof():
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """At once: the other side sees that nobody reads."""
        if self.expiry is not None:
            self.expiry.cancel()
        self._writer.transport.abort()


class Answer:
    """The status of an answer, its headers by small letters, and its body as it comes."""

    def __init__(self, connection: _Connection, head: h11.Response) -> None:
        self._connection = connection
        self.status = head.status_code
        self.content_type = next((v for k, v in head.headers if k == b"content-type"), b"").decode("latin-1")

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    async def parts(self) -> AsyncIterator[bytes]:
        """Broken when it ends too early."""
        try:
            async for data in self._connection.body():
                yield data
        except (OSError, h11.RemoteProtocolError) as error:
            raise _broken(error) from None

    async def read(self) -> bytes:
        return b"".join([data async for data in self.parts()])


class Wire:
    """Connections to any number of engines, by their URLs. There is no limit: a full pool would be a wait
    that nobody sees."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Connection]] = defaultdict(list)

    @asynccontextmanager
    async def post(
        self, url: str, path: str, headers: Mapping[str, str], content: bytes
    ) -> AsyncIterator[Answer]:
        """Send and wait for the head of the answer. NoConnection, Broken. Left early, the connection ends."""
        host = _place(url)[3]
        lines = [(b"host", host), (b"content-length", b"%d" % len(content))]
        lines += [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        connection = self._take(url) or await _connect(url)
        kept = False
        try:
            try:
                await connection.send(path, lines, content)
                head = await connection.head()
            except (OSError, h11.RemoteProtocolError) as error:
                raise _broken(error) from None
            yield Answer(connection, head)
            kept = connection.again()
        finally:
            if kept:
                self._keep(url, connection)
            else:
                connection.close()

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _take(self, url: str) -> _Connection | None:
        idle = self._idle[url]
        while idle:
            connection = idle.pop()
            if connection.expiry is not None:
                connection.expiry.cancel()
            if connection.quiet():
                return connection
            connection.close()
        return None

    def _keep(self, url: str, connection: _Connection) -> None:
        self._idle[url].append(connection)
        loop = asyncio.get_running_loop()
        connection.expiry = loop.call_later(KEEP, self._expire, url, connection)

    def _expire(self, url: str, connection: _Connection) -> None:
        self._idle[url].remove(connection)
        connection.close()


async def _connect(url: str) -> _Connection:
    host, port, tls, _ = _place(url)
    try:
        async with asyncio.timeout(CONNECT_DEADLINE):
            reader, writer = await asyncio.open_connection(host, port, ssl=_tls() if tls else None)
    except TimeoutError:
        raise NoConnection(f"no answer within {CONNECT_DEADLINE:g} s") from None
    except OSError as error:
        raise NoConnection(error.strerror or str(error) or type(error).__name__) from None
    return _Connection(reader, writer)


def _broken(error: Exception) -> Broken:
    return Broken(str(error) or type(error).__name__)
