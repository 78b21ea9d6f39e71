"""The answer to one client: what was sent of it decides how an error can still be said."""

from __future__ import annotations

import re

from starlette.types import Receive, Scope, Send

from engine.core.errors import EngineError
from engine.http.errors import ERROR_MARK, error_event, error_response
from engine.http.gone import send_patiently
from engine.http.ids import HEADER

_CODE = re.compile(rb'"code":\s*"([^"]+)"')


class Outgoing:
    """`failed_inside` is the code of an error event that passed by inside a stream."""

    def __init__(self, id: str, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = id
        self._scope = scope
        self._receive = receive
        self._send = send
        self._tail = b"\n\n"
        self.started = False
        self.finished = False
        self.failed_inside: str | None = None

    async def start(self, status: int, content_type: str, length: int | None = None) -> None:
        headers = [
            (b"content-type", content_type.encode("latin-1")),
            (HEADER.lower().encode(), self.id.encode()),
        ]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def chunk(self, data: bytes) -> int:
        """Pass stream bytes on; returns how many events of the answer are in them."""
        if ERROR_MARK in data:
            found = _CODE.search(data)
            self.failed_inside = found[1].decode("ascii", "replace") if found else "engine_failed"
        self._tail = (self._tail + data)[-2:]
        await send_patiently(self._send, {"type": "http.response.body", "body": data, "more_body": True})
        return data.count(b"data: ") - data.count(b"data: [DONE]")

    async def end(self, data: bytes = b"") -> None:
        self.finished = True
        await send_patiently(self._send, {"type": "http.response.body", "body": data, "more_body": False})

    async def error(self, error: EngineError) -> None:
        """Say that the request failed: a status and a body, an event in a stream, nothing after the end."""
        if not self.started:
            self.started = self.finished = True
            await error_response(error, {HEADER: self.id})(self._scope, self._receive, self._send)
        elif not self.finished:
            separator = b"" if self._tail == b"\n\n" else b"\n\n"
            await self.end(separator + error_event(error))
