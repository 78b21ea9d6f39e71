"""Running an ASGI app on one socket until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from engine.core.errors import EngineError, Exit
from engine.http.bounded import BoundedProtocol, raise_limit

# Longer than any client of ours keeps an idle connection (httpx: 20 s), so that the client closes first
# and never sends a request into a connection that is being closed.
KEEP_ALIVE = 75


class PortInUse(EngineError):
    exit = Exit.PORT_IN_USE


def listen(host: str, port: int) -> socket.socket:
    """A bound TCP socket with TCP_NODELAY for all it accepts; PortInUse when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol number is IPPROTO_TCP, and without it the
    # second small write of a stream waits 40 ms for a delayed ACK. Accepted sockets inherit both.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as e:
        sock.close()
        hint = f"Who holds it: ss -ltnp 'sport = :{port}'"
        raise PortInUse("port_in_use", f"Cannot listen on {host}:{port}: {e.strerror}.", hint) from None
    sock.setblocking(False)
    return sock


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process, not to one of its servers."""
        yield


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; call it inside the running loop of the main thread."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _when_started(
    server: uvicorn.Server, running: asyncio.Task[None], tell: Callable[[], None]
) -> None:
    while not server.started and not running.done():
        await asyncio.sleep(0.01)
    if server.started:
        tell()


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    stop: asyncio.Event,
    sock: socket.socket | None = None,
    grace: float = 5.0,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until `stop` is set, then let running requests end for `grace` seconds and cancel the rest.

    `sock` is a socket of listen() made earlier (then host and port are not used); `started` is called
    once connections are accepted. No access log; the process's logging configuration is left alone.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        loop="none",
        http=BoundedProtocol,
        ws="none",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, math.ceil(grace)),
    )
    raise_limit()
    server = _Server(config)
    listener = sock if sock is not None else listen(host, port)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await _when_started(server, running, started or (lambda: None))
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await running
    finally:
        stopping.cancel()
        server.should_exit = True
