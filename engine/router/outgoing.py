"""The answer to one client: what was sent of it decides how an error can still be said."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from engine.core.errors import EngineError
from engine.http.errors import error_event, error_response
from engine.http.gone import send_patiently
from engine.http.ids import HEADER
from engine.router.stream import Stream


class Outgoing:
    """One answer, whichever engines give it. `stream` is what the client has, where it is a stream."""

    def __init__(self, id: str, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = id
        self.stream = Stream()
        self._scope = scope
        self._receive = receive
        self._send = send
        self.started = False
        self.finished = False

    async def start(self, status: int, content_type: str, length: int | None = None) -> None:
        """The head of the answer; nothing where it was sent already."""
        if self.started:
            return
        headers = [
            (b"content-type", content_type.encode("latin-1")),
            (HEADER.lower().encode(), self.id.encode()),
        ]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def chunk(self, data: bytes) -> int:
        """Pass stream bytes on; how many events of the answer that were. An error event is in `stream`."""
        before = self.stream.events
        passed = self.stream.feed(data)
        if passed:
            await self._body(passed, more=True)
        return self.stream.events - before

    async def end(self, data: bytes = b"") -> None:
        self.finished = True
        await self._body(data, more=False)

    async def _body(self, data: bytes, more: bool) -> None:
        await send_patiently(self._send, {"type": "http.response.body", "body": data, "more_body": more})

    async def error(self, error: EngineError) -> None:
        """Say that the request failed: a status and a body, an event in a stream, nothing after the end."""
        if not self.started:
            self.started = self.finished = True
            await error_response(error, {HEADER: self.id})(self._scope, self._receive, self._send)
        elif not self.finished:
            await self.end(error_event(error))
