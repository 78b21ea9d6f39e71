"""HTTP connections with bounds: a request's head has a deadline, and idle connections give way to new ones.

uvicorn alone waits for ever for the first bytes of a connection and for the rest of a head, so that a few
thousand silent clients would keep everybody else out.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_DEADLINE = 20.0
# Descriptors that a server must have for other things: its ranks, its links, its legs to engines.
_RESERVE = 256
_MOST = 1 << 16


def raise_limit() -> None:
    """Take the descriptors that this process is allowed; a shell's soft limit of 1,024 is for select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """How many connections one server may hold: half of what descriptors there are, the rest are legs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)
    return max(16, (most - _RESERVE) // 2)


def _answer(status: str, code: str, message: str, kind: str) -> bytes:
    body = f'{{"error":{{"message":"{message}","type":"{kind}","code":"{code}","param":null}}}}'
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


class BoundedProtocol(H11Protocol):
    """Closes a connection whose head does not come; beyond `limit()`, the one that was idle longest."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle_since = self.loop.time()
        self._head: asyncio.TimerHandle | None = None

    @property
    def working(self) -> bool:
        """Whether a request has come and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()
        most = limit()
        if len(self.connections) > most and not self._make_room():
            text = f"This server has {most} requests at once already."
            self._refuse("503 Service Unavailable", "too_many_connections", text, "overloaded_error")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.working:
            self._disarm()
        elif self._head is None:
            self._arm()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if not self.working and self._head is None and self.conn.trailing_data[0]:
            self._arm()  # the next head has begun already

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        self._head = self.loop.call_later(HEAD_DEADLINE, self._late)

    def _disarm(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _late(self) -> None:
        self._head = None
        if not self.working:
            text = f"The head of the request took over {HEAD_DEADLINE:g} s."
            self._refuse("408 Request Timeout", "head_timeout", text, "timeout_error")

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; False when every one has a request."""
        idle = [
            c for c in self.connections if isinstance(c, BoundedProtocol) and c is not self and not c.working
        ]
        if not idle:
            return False
        min(idle, key=lambda c: c._idle_since)._close()
        return True

    def _refuse(self, status: str, code: str, message: str, kind: str) -> None:
        self.transport.write(_answer(status, code, message, kind))
        self._close()

    def _close(self) -> None:
        self.connections.discard(self)
        self.transport.close()
