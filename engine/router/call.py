"""What a client asked for, as far as the router looks into it, and what each leg is sent."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request

from engine.http.body import convert, read_object
from engine.http.ids import HEADER

# Tracing passes through; credentials do not, engines take their requests from the router alone.
_FORWARDED = ("traceparent", "tracestate")


class _Body(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None


@dataclass(frozen=True)
class Call:
    """`body` is the client's; engines judge all of it but `model` and `stream`.

    `created` is in Unix seconds, the same in all chunks of an answer.
    """

    path: str
    body: dict[str, Any]
    stream: bool
    model: str
    headers: dict[str, str]
    created: int

    def leg_body(self, host: str, port: int, room: int, resumable: dict[str, Any] | None) -> bytes:
        """The same body for both legs, with where their KV meets, and how far the stream is."""
        where = {"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": room}
        extra = {} if resumable is None else {"resumable": resumable}
        return msgspec.json.encode({**self.body, **where, **extra})

    def resumable(self, id: str, tokens: Iterable[int]) -> dict[str, Any]:
        """What engines need to go on with the stream; `tokens` are what the client has of it."""
        return {"id": id, "created": self.created, "tokens": list(tokens)}

    def leg_headers(self, id: str) -> dict[str, str]:
        return {**self.headers, HEADER: id, "content-type": "application/json"}


async def read_call(request: Request) -> Call:
    """The call of an HTTP request; RequestError when its body is no object or `model` or `stream` is odd."""
    body = await read_object(request)
    body.pop("resumable", None)  # between the router and its engines
    seen = convert(body, _Body)
    given = ((name, request.headers.get(name)) for name in _FORWARDED)
    headers = {name: value for name, value in given if value is not None and value.isascii()}
    return Call(request.url.path, body, bool(seen.stream), seen.model or "", headers, int(time.time()))
