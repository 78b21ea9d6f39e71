"""Clients that hold connections and say little: each has a deadline, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.http import bounded
from engine.http.body import read_body
from engine.http.errors import HANDLERS, json_response
from engine.http.serve import listen, serve

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
GET = b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def server() -> AsyncIterator[tuple[Connect, asyncio.Event, list[int]]]:
    """How to connect to a server, the event that its /slow waits for, and how many came there."""
    at = [0]
    gate, stop, up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ok(_: Request) -> Response:
        return json_response({})

    async def slow(_: Request) -> Response:
        at[0] += 1
        await gate.wait()
        return json_response({})

    async def body(request: Request) -> Response:
        return json_response({"bytes": len(await read_body(request))})

    routes = [Route("/ok", ok), Route("/slow", slow), Route("/body", body, methods=["POST"])]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    with listen("127.0.0.1", 0) as sock:
        task = asyncio.create_task(serve(app, "", 0, stop=stop, sock=sock, grace=1, started=up.set))
        port = sock.getsockname()[1]
        async with asyncio.timeout(150):
            await up.wait()
            yield lambda: asyncio.open_connection("127.0.0.1", port), gate, at
            stop.set()
            await task


async def answer(streams: Streams, request: bytes = b"") -> bytes:
    """Send, then what comes until the server closes or has answered."""
    reader, writer = streams
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


@pytest.mark.parametrize(
    "drip", [b"", b"GET /ok HT", b"GET /ok HTTP/1.1\r\nhost: x\r\nx-a: b\r\n", GET + b"GET /o"]
)
def test_a_head_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch, drip: bytes) -> None:
    """Also when a byte arrives now and then, and after a first request was answered."""
    monkeypatch.setattr(bounded, "HEAD_DEADLINE", 0.4)

    async def go() -> bytes:
        async with server() as (connect, _, _):
            reader, writer = await connect()
            writer.write(drip)
            got = bytearray()
            while data := await reader.read(4096):
                got += data
                if not data.endswith(b"}"):
                    writer.write(b"x")
            return bytes(got)

    got = asyncio.run(go())
    assert b'"code":"head_timeout"' in got and b"408 Request Timeout" in got
    assert (b"200 OK" in got) == drip.startswith(GET)


def test_a_request_that_takes_long_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "HEAD_DEADLINE", 0.2)

    async def go() -> bytes:
        async with server() as (connect, gate, _):
            asyncio.get_running_loop().call_later(0.8, gate.set)
            return await answer(await connect(), GET.replace(b"/ok", b"/slow"))

    assert b"200 OK" in asyncio.run(go())


def test_a_body_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.http.body.BODY_DEADLINE", 0.4)

    async def go() -> bytes:
        async with server() as (connect, _, _):
            return await answer(
                await connect(), b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc"
            )

    got = asyncio.run(go())
    assert b"408" in got and b'"code":"body_timeout"' in got


def test_the_connection_that_was_idle_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "limit", lambda: 8)

    async def go() -> None:
        async with server() as (connect, _, _):
            idle = [await connect() for _ in range(8)]
            for streams in idle[1:]:
                await answer(streams, GET)
            assert b"200 OK" in await answer(await connect(), GET)
            assert await idle[0][0].read() == b"", "it had never said a word"
            assert b"200 OK" in await answer(idle[1], GET), "the others live"

    asyncio.run(go())


def test_when_every_connection_works_a_new_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "limit", lambda: 3)

    async def go() -> bytes:
        async with server() as (connect, gate, at):
            busy = [await connect() for _ in range(3)]
            for _, writer in busy:
                writer.write(GET.replace(b"/ok", b"/slow"))
            while at[0] < 3:
                await asyncio.sleep(0.005)
            got = await answer(await connect())
            gate.set()
            for streams in busy:
                assert b"200 OK" in await answer(streams)
            return got

    got = asyncio.run(go())
    assert b"503" in got and b'"code":"too_many_connections"' in got


def test_two_thousand_idle_connections_keep_nobody_out() -> None:
    async def go() -> None:
        async with server() as (connect, _, _):
            idle = [await connect() for _ in range(2000)]
            assert b"200 OK" in await answer(await connect(), GET)
            for _, writer in idle:
                writer.close()

    asyncio.run(go())


def test_a_server_takes_the_descriptors_it_may_have() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (900, hard))
    try:
        assert bounded.limit() == (900 - 256) // 2
        bounded.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 900
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
