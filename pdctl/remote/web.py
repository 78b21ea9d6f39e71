"""HTTP to a fleet's engines by the way that leads to each: straight, or through the host's transport.

URLs stay what peers use, so errors and evidence name real addresses; only the connect differs.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

from pdctl.errors import UnreachableError
from pdctl.remote.fanout import begin
from pdctl.transport.base import Transport

# address -> the transport of the host that has it; None leads straight there.
Route = Callable[[str], Transport | None]
CONNECT = 10.0
CHUNK = 1 << 16


def client(route: Route, timeout: float) -> httpx.Client:
    """`timeout` seconds bound every single wait. No proxy of the environment is used."""
    # Fleets speak plain HTTP; loading the certificate store would cost more than the call.
    transport = httpx.HTTPTransport(verify=False)
    transport._pool = httpcore.ConnectionPool(network_backend=_Backend(route))
    return httpx.Client(transport=transport, trust_env=False, timeout=timeout)


def async_client(
    route: Route, timeout: float = 5.0, connections: int = 256, keep: int | None = None
) -> httpx.AsyncClient:
    """`keep` idle connections at most, None as many as there may be. Every request polls each of them, so a
    client that asks hundreds of servers keeps none.
    """
    transport = httpx.AsyncHTTPTransport(verify=False)
    transport._pool = httpcore.AsyncConnectionPool(
        max_connections=connections, max_keepalive_connections=keep, network_backend=_AsyncBackend(route)
    )
    return httpx.AsyncClient(transport=transport, trust_env=False, timeout=timeout)


def _dial(transport: Transport, host: str, port: int, timeout: float | None) -> socket.socket | None:
    """None when the host itself cannot be asked: then the straight way is the last one left."""
    try:
        return transport.dial(host, port, CONNECT if timeout is None else timeout)
    except UnreachableError:
        return None
    except TimeoutError as error:
        raise httpcore.ConnectTimeout(f"no answer from {host}:{port}") from error
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error


def _left(timeout: float | None, began: float) -> float | None:
    """What is left for the straight way: both together are one connect, or a host that is gone would look
    like one that took the connect and fell silent. A host's port may answer where its SSH does not.
    """
    return None if timeout is None else max(timeout - (time.monotonic() - began), timeout / 10)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, route: Route) -> None:
        self._route = route
        self._straight = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        transport, began = self._route(host), time.monotonic()
        found = None if transport is None else _dial(transport, host, port, timeout)
        if found is None:
            left = _left(timeout, began)
            return self._straight.connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(found)


class _Stream(httpcore.NetworkStream):
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        return self._socket if info == "socket" else None


class _AsyncBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, route: Route) -> None:
        self._route = route
        self._straight = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        transport, began = self._route(host), time.monotonic()
        if transport is not None:
            # On a thread of its own: a transport may first have to reach its host.
            dialing = asyncio.wrap_future(begin(lambda: _dial(transport, host, port, timeout)))
            try:
                found = await asyncio.wait_for(dialing, timeout)
            except TimeoutError as error:
                raise httpcore.ConnectTimeout(f"no way to {host}:{port} yet") from error
            if found is not None:
                found.setblocking(False)
                return _AsyncStream(found)
        left = _left(timeout, began)
        return await self._straight.connect_tcp(host, port, left, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return await asyncio.wait_for(self._loop.sock_recv(self._socket, max_bytes), timeout)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            await asyncio.wait_for(self._loop.sock_sendall(self._socket, buffer), timeout)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        return self._socket if info == "socket" else None
