"""HTTP through a transport: URLs stay true, failures keep their kinds, sync and async alike."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from pdctl.adapters.picture import Reach
from pdctl.adapters.probe import get
from pdctl.errors import UnreachableError
from pdctl.remote import web
from pdctl.transport.local import LocalTransport

# An address that nothing on this machine has: what reaches it went through the transport.
FAR = "192.0.2.7"


class Far(LocalTransport):
    """A host whose FAR address is this machine's loopback."""

    def __init__(self) -> None:
        super().__init__("far")
        self.dialled: list[tuple[str, int]] = []
        self.gone = False

    def dial(self, address: str, port: int, deadline: float = 10.0) -> socket.socket:
        self.dialled.append((address, port))
        if self.gone:
            raise UnreachableError("unreachable", "far cannot be reached.")
        return super().dial("127.0.0.1", port, deadline)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"host": "%s"}' % self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_a_request_goes_through_the_hosts_transport_and_keeps_its_url(port: int) -> None:
    far = Far()
    with web.client(lambda address: far if address == FAR else None, 5.0) as client:
        assert client.get(f"http://{FAR}:{port}/x").json() == {"host": f"{FAR}:{port}"}
        assert client.get(f"http://127.0.0.1:{port}/x").json() == {"host": f"127.0.0.1:{port}"}
    assert far.dialled == [(FAR, port)]


def test_many_at_once(port: int) -> None:
    far = Far()

    async def ask() -> list[str]:
        async with web.async_client(lambda address: far) as client:
            answers = await asyncio.gather(*(client.get(f"http://{FAR}:{port}/{n}") for n in range(40)))
            return [answer.json()["host"] for answer in answers]

    assert asyncio.run(ask()) == [f"{FAR}:{port}"] * 40


def test_a_refusal_and_silence_are_told_apart() -> None:
    far = Far()
    with socket.socket() as unused, socket.create_server(("127.0.0.1", 0)) as mute:
        unused.bind(("127.0.0.1", 0))
        closed, silent = unused.getsockname()[1], mute.getsockname()[1]

        async def ask(port: int) -> Reach:
            async with web.async_client(lambda address: far) as client:
                return (await get(client, f"http://{FAR}:{port}/v1/state", 0.5)).reach

        assert asyncio.run(ask(closed)) is Reach.REFUSED
        assert asyncio.run(ask(silent)) is Reach.TIMED_OUT
        with web.client(lambda address: far, 0.5) as client:
            with pytest.raises(httpx.ConnectError, match="refused"):
                client.get(f"http://{FAR}:{closed}/")
            with pytest.raises(httpx.ReadTimeout):
                client.get(f"http://{FAR}:{silent}/")


def test_a_host_that_cannot_be_asked_is_tried_straight(port: int) -> None:
    far = Far()
    far.gone = True
    with web.client(lambda address: far, 5.0) as client:
        assert client.get(f"http://127.0.0.1:{port}/").status_code == 200
    assert far.dialled == [("127.0.0.1", port)]
