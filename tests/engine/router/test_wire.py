"""The connections behind legs: kept, given up, and never mistaken for good ones."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.router import wire as module
from engine.router.wire import Answer, Broken, NoConnection, Wire

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"


@asynccontextmanager
async def server(*answers: Serve) -> Any:
    """Serves its n-th connection by the n-th of `answers`; yields its URL and the count of connections."""
    seen: list[int] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(len(seen))
        try:
            await answers[min(len(seen), len(answers)) - 1](reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", seen


async def request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
    return head, await reader.readexactly(length)


def saying(*texts: bytes) -> Serve:
    """Each request of the connection gets one of these; then it is closed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for text in texts:
            await request(reader)
            writer.write(text)
            await writer.drain()

    return answer


async def ask(wire: Wire, url: str, content: bytes = b"{}") -> tuple[int, bytes]:
    async with wire.post(url, "/x", {"X-Request-ID": "a"}, content) as answer:
        return answer.status, await answer.read()


def run(test: Callable[[Wire], Awaitable[None]]) -> None:
    async def main() -> None:
        wire = Wire()
        async with asyncio.timeout(20):
            await test(wire)
        wire.close()

    asyncio.run(main())


def test_a_connection_is_kept_for_the_next_request() -> None:
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            head, body = await request(reader)
            heads.append(head)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def test(wire: Wire) -> None:
        async with server(answer) as (url, seen):
            for content in (b"one", b"x" * 300_000, b""):
                assert await ask(wire, url, content) == (200, content)
            assert seen == [0]
            assert heads[0].startswith("POST /x HTTP/1.1\r\n") and f"{url[7:]}\r\n" in heads[0]
            assert "x-request-id: a\r\n" in heads[0].lower()

    run(test)


def test_two_at_once_have_a_connection_each() -> None:
    async def test(wire: Wire) -> None:
        async with server(saying(OK, OK)) as (url, seen):
            await asyncio.gather(ask(wire, url), ask(wire, url))
            assert seen == [0, 1]
            await asyncio.gather(ask(wire, url), ask(wire, url))
            assert seen == [0, 1]

    run(test)


@pytest.mark.parametrize("more", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
def test_a_kept_connection_that_the_other_side_ended_is_not_used(more: bytes) -> None:
    closed = asyncio.Event()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        await writer.drain()
        await closed.wait()
        writer.write(more)

    async def test(wire: Wire) -> None:
        async with server(once, saying(OK)) as (url, seen):
            await ask(wire, url)
            (connection,) = wire._idle[url]
            closed.set()
            async with asyncio.timeout(10):
                while connection.quiet():
                    await asyncio.sleep(0.005)
            assert await ask(wire, url) == (200, b"hi") and seen == [0, 1]

    run(test)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_an_answer_that_breaks_off_or_is_none(text: bytes) -> None:
    async def test(wire: Wire) -> None:
        async with server(saying(text)) as (url, _):
            with pytest.raises(Broken, match=r"\w"):
                await ask(wire, url)
            assert not wire._idle[url]

    run(test)


def test_what_came_before_a_break_is_passed_on() -> None:
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n"

    async def test(wire: Wire) -> None:
        async with server(saying(text)) as (url, _), wire.post(url, "/x", {}, b"") as answer:
            got = []
            with pytest.raises(Broken):
                async for data in answer.parts():
                    got.append(data)
            assert b"".join(got) == b"abc"

    run(test)


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\n\r\nhi",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi",
    ],
)
def test_an_answer_that_ends_its_connection(text: bytes) -> None:
    async def test(wire: Wire) -> None:
        async with server(saying(text)) as (url, seen):
            assert await ask(wire, url) == await ask(wire, url) == (200, b"hi")
            assert seen == [0, 1]

    run(test)


def test_a_leg_that_is_cancelled_or_left_ends_its_connection() -> None:
    gone = asyncio.Semaphore(0)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        try:
            await reader.read()
        except ConnectionError:
            pass
        gone.release()

    async def test(wire: Wire) -> None:
        async with server(hang) as (url, _):
            asking = asyncio.create_task(ask(wire, url))
            await asyncio.sleep(0)
            async with wire.post(url, "/x", {}, b"") as answer:
                assert isinstance(answer, Answer) and answer.ok
            await gone.acquire()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert not wire._idle[url]

    run(test)


def test_no_connection_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refusing = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def test(wire: Wire) -> None:
            with pytest.raises(NoConnection, match=r"(?i)refused|connect call failed"):
                await ask(wire, refusing)
            with pytest.raises(NoConnection, match=r"\w"):
                await ask(wire, "http://no-such-host.invalid:80")

        run(test)

    async def late(wire: Wire) -> None:
        monkeypatch.setattr(module, "CONNECT_DEADLINE", 0.05)
        monkeypatch.setattr(asyncio, "open_connection", lambda *_, **__: asyncio.sleep(60))
        with pytest.raises(NoConnection, match=r"within 0\.05 s"):
            await ask(wire, refusing)

    run(late)


def test_a_connection_is_kept_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP", 0.05)

    async def test(wire: Wire) -> None:
        async with server(saying(OK, OK)) as (url, _):
            await ask(wire, url)
            while wire._idle[url]:
                await asyncio.sleep(0.005)

    run(test)
