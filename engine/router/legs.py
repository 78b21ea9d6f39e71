"""The two HTTP requests behind one client request, one to each engine of a pair."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from engine.core.errors import RequestError
from engine.http.errors import ParamError
from engine.router.ledger import Entry, Ledger, Side
from engine.router.outgoing import Outgoing
from engine.router.pairs import Engine

log = logging.getLogger(__name__)

# Deadlines are the router's own (overdue.py); only the connect is bounded here. Requests share no pool
# limit, because a full pool would be a wait that nobody sees.
TIMEOUT = httpx.Timeout(None, connect=5.0)
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=20.0)
_QUOTED = 300


# A host that vanished closes no connection; the kernel asks after 5 s of silence and gives up after 6 more.
SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Refused(RequestError):
    """No connection to this engine, so it has seen nothing of the request."""

    def __init__(self, engine: Engine, why: str) -> None:
        message = f"No connection to {engine.instance} at {engine.url}: {why.rstrip('.')}."
        super().__init__("engine_unreachable", message, 502, "Try again later.")
        self.engine = engine


@dataclass(frozen=True)
class Leg:
    """One side of one request: where it goes and what it sends."""

    side: Side
    engine: Engine
    path: str
    content: bytes
    headers: dict[str, str]


def engine_error(engine: Engine, status: int, body: bytes) -> ParamError:
    """The error in an engine's answer, to pass on; an answer that is no OpenAI error is quoted in part."""
    status = status if status >= 400 else 502
    try:
        error: Any = msgspec.json.decode(body)["error"]
        param = error.get("param")
        param = None if param is None else str(param)
        return ParamError(param, str(error["message"]), str(error["code"]), status=status)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        said = body[:_QUOTED].decode("utf-8", "replace").strip() or "nothing"
        message = f"{engine.instance} answered {status} and said: {said}"
        return ParamError(None, message, "engine_failed", status=status)


class Legs:
    """Sends legs and keeps the ledger's view of them and each engine's load true."""

    def __init__(self, http: httpx.AsyncClient, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._http = http
        self._ledger = ledger
        self._clock = clock

    async def prefill(self, entry: Entry, leg: Leg) -> None:
        """Run the prefill leg to its end; its body is a receipt and is dropped. RequestError."""
        await self._tracked(entry, leg, self._prefill(leg))

    async def decode(self, entry: Entry, leg: Leg, out: Outgoing) -> None:
        """Run the decode leg and give its answer to the client. RequestError."""
        await self._tracked(entry, leg, self._decode(entry, leg, out))

    async def _tracked(self, entry: Entry, leg: Leg, work: Any) -> None:
        leg.engine.active += 1
        try:
            await work
        except asyncio.CancelledError:
            self._ledger.leg(entry, leg.side, "cancelled", self._clock())
            raise
        except (httpx.ConnectError, httpx.ConnectTimeout) as e:
            self._ledger.leg(entry, leg.side, "failed", self._clock())
            raise Refused(leg.engine, str(e) or type(e).__name__) from None
        except httpx.HTTPError as e:
            self._ledger.leg(entry, leg.side, "failed", self._clock())
            log.warning("%s of %s broke off: %s", leg.side, entry.id, str(e) or type(e).__name__)
            message = f"{leg.engine.instance} broke off during {leg.side}."
            raise RequestError("engine_lost", message, 502, "See whether it restarted.") from None
        except RequestError:
            self._ledger.leg(entry, leg.side, "failed", self._clock())
            raise
        else:
            self._ledger.leg(entry, leg.side, "done", self._clock())
        finally:
            leg.engine.active -= 1

    def _request(self, leg: Leg) -> Any:
        return self._http.stream("POST", leg.engine.url + leg.path, content=leg.content, headers=leg.headers)

    async def _prefill(self, leg: Leg) -> None:
        async with self._request(leg) as response:
            body = await response.aread()
        if not response.is_success:
            raise engine_error(leg.engine, response.status_code, body)

    async def _decode(self, entry: Entry, leg: Leg, out: Outgoing) -> None:
        async with self._request(leg) as response:
            if not response.is_success:
                raise engine_error(leg.engine, response.status_code, await response.aread())
            self._ledger.streaming(entry, self._clock())
            content_type = response.headers.get("content-type", "application/json")
            if content_type.startswith("text/event-stream"):
                await out.start(response.status_code, content_type)
                await self._stream(entry, response, out)
            elif out.started:
                message = f"{leg.engine.instance} answered with {content_type} where a stream goes on."
                raise RequestError("engine_failed", message, 502)
            else:
                body = await response.aread()
                await out.start(response.status_code, content_type, len(body))
                await out.end(body)

    async def _stream(self, entry: Entry, response: httpx.Response, out: Outgoing) -> None:
        try:
            async for data in response.aiter_raw():
                self._ledger.tokens(entry, await out.chunk(data), self._clock())
                if out.stream.error is not None:
                    raise out.stream.error
        except httpx.HTTPError:
            if not out.stream.complete:
                raise
        await out.end(out.stream.rest())
