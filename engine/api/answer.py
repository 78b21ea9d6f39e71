"""Sending the answer of a call: one JSON document, or server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from starlette.types import Receive, Scope, Send

from engine.api.formats import Format
from engine.api.run import Piece, Run
from engine.api.samples import together
from engine.core.errors import EngineError
from engine.http.errors import error_event, json_response
from engine.http.gone import send_patiently
from engine.http.marks import mark_line

DONE = b"data: [DONE]\n\n"


def event(document: object) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


async def send_whole(
    runs: Sequence[Run], form: Format, headers: dict[str, str], scope: Scope, receive: Receive, send: Send
) -> None:
    """Collect the runs and answer with one document; RequestError when one failed."""
    parts: list[list[Piece]] = [[] for _ in runs]
    async with aclosing(together(runs)) as pieces:
        async for index, piece in pieces:
            parts[index].append(piece)
    document = form.whole([_joined(each) for each in parts])
    await json_response(document, 200, headers)(scope, receive, send)


def _joined(pieces: Sequence[Piece]) -> Piece:
    tokens = [token for piece in pieces for token in piece.tokens]
    logprobs = [one for piece in pieces for one in piece.logprobs]
    return Piece("".join(p.text for p in pieces), tokens, pieces[-1].finish or "", logprobs)


async def _body(send: Send, data: bytes, more: bool = True) -> None:
    await send_patiently(send, {"type": "http.response.body", "body": data, "more_body": more})


async def _events(
    first: tuple[int, Piece],
    pieces: AsyncGenerator[tuple[int, Piece], None],
    form: Format,
    send: Send,
    marked: bool,
) -> None:
    item: tuple[int, Piece] | None = first
    tokens: list[int] = []  # whose text is not in an event yet
    while item is not None:
        index, piece = item
        document = form.chunk(piece, index)
        tokens.extend(piece.tokens)
        if document is not None:
            mark = mark_line(tokens, piece.finish is not None) if marked else b""
            await _body(send, mark + event(document))
            tokens.clear()
        item = await anext(pieces, None)
    document = form.last()
    if document is not None:
        await _body(send, event(document))
    await _body(send, DONE)


async def send_stream(
    runs: Sequence[Run], form: Format, headers: dict[str, str], send: Send, marked: bool = False
) -> None:
    """Stream the runs. Headers go out with the first piece, so a failure before it keeps its status.

    `marked` puts the token ids beside each event, of which there is one run then.
    RequestError when one failed before the first piece; a later failure becomes an error event.
    """
    async with aclosing(together(runs)) as pieces:
        first = await anext(pieces)
        named = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
        raw = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in named.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        try:
            await _events(first, pieces, form, send, marked)
        except EngineError as e:
            await _body(send, error_event(e))
        await _body(send, b"", more=False)
