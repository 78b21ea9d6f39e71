"""Sending the answer of a run: one JSON document, or server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.types import Receive, Scope, Send

from engine.api.formats import Format
from engine.api.run import Piece, Run
from engine.core.errors import EngineError
from engine.core.types import Logprob
from engine.http.errors import error_event, json_response
from engine.http.gone import send_patiently
from engine.http.marks import mark_line

DONE = b"data: [DONE]\n\n"


def event(document: object) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


async def send_whole(
    run: Run, form: Format, headers: dict[str, str], scope: Scope, receive: Receive, send: Send
) -> None:
    """Collect the run and answer with one document; RequestError when it failed."""
    texts: list[str] = []
    tokens: list[int] = []
    logprobs: list[Logprob] = []
    finish = ""
    async with aclosing(run.pieces()) as pieces:
        async for piece in pieces:
            texts.append(piece.text)
            tokens.extend(piece.tokens)
            logprobs.extend(piece.logprobs)
            finish = piece.finish or finish
    document = form.whole(Piece("".join(texts), tokens, finish, logprobs))
    await json_response(document, 200, headers)(scope, receive, send)


async def _body(send: Send, data: bytes, more: bool = True) -> None:
    await send_patiently(send, {"type": "http.response.body", "body": data, "more_body": more})


async def _events(
    first: Piece, pieces: AsyncGenerator[Piece, None], form: Format, send: Send, marked: bool
) -> None:
    piece: Piece | None = first
    tokens: list[int] = []  # whose text is not in an event yet
    while piece is not None:
        document = form.chunk(piece)
        tokens.extend(piece.tokens)
        if document is not None:
            mark = mark_line(tokens, piece.finish is not None) if marked else b""
            await _body(send, mark + event(document))
            tokens.clear()
        piece = await anext(pieces, None)
    document = form.last()
    if document is not None:
        await _body(send, event(document))
    await _body(send, DONE)


async def send_stream(
    run: Run, form: Format, headers: dict[str, str], send: Send, marked: bool = False
) -> None:
    """Stream the run. Headers go out with the first piece, so a failure before it keeps its status.

    `marked` puts the token ids beside each event.
    RequestError when it failed before the first piece; a later failure becomes an error event.
    """
    async with aclosing(run.pieces()) as pieces:
        first = await anext(pieces)
        named = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
        raw = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in named.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        try:
            await _events(first, pieces, form, send, marked)
        except EngineError as e:
            await _body(send, error_event(e))
        await _body(send, b"", more=False)
