"""One request through the router: admission, both legs at once, one end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from engine.core.errors import EngineError, RequestError
from engine.core.ids import new_room
from engine.http.gone import Stalled, cancel, disconnected
from engine.router.call import Call
from engine.router.hold import Admission
from engine.router.ledger import End, Entry, Ledger
from engine.router.legs import Leg, Legs, Refused
from engine.router.outgoing import Outgoing
from engine.router.pairs import Pair

log = logging.getLogger(__name__)
# Decode can be through before the prefill's receipt is; after this the receipt is of no use to anyone.
_RECEIPT_WAIT = 2.0


@dataclass
class Flight:
    """A request under way. Setting `stop` ends it: an error for the client, code "aborted" an abort."""

    entry: Entry
    call: Call
    stop: asyncio.Future[RequestError]

    def end_with(self, error: RequestError) -> bool:
        if self.stop.done():
            return False
        self.stop.set_result(error)
        return True


class Dispatcher:
    """Runs flights. `suspect` is told of an engine that refused a connection."""

    def __init__(
        self,
        ledger: Ledger,
        admission: Admission,
        legs: Legs,
        clock: Callable[[], float],
        suspect: Callable[[Refused], None],
    ) -> None:
        self._ledger = ledger
        self._admission = admission
        self._legs = legs
        self._clock = clock
        self._suspect = suspect
        self.flights: dict[str, Flight] = {}

    async def run(self, id: str, call: Call, out: Outgoing, receive: Receive) -> None:
        """Serve one request to its end, which is in the ledger whatever happens here."""
        entry = self._ledger.admit(id, call.stream, call.model, self._clock())
        flight = self.flights[id] = Flight(entry, call, asyncio.get_running_loop().create_future())
        work = asyncio.create_task(self._work(flight, out))
        gone = asyncio.create_task(disconnected(receive))
        ends: set[asyncio.Future[Any]] = {work, flight.stop}
        try:
            await asyncio.wait({*ends, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and out.finished and not work.done():
                # The client has its whole answer; what is left is the prefill's receipt.
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await cancel(work, gone)
            await self._settle(flight, work, out)
        finally:
            await cancel(work, gone)
            del self.flights[id]
            self._end(entry, "aborted", "router_stopped")  # nothing, unless this task itself was cancelled

    async def _settle(self, flight: Flight, work: asyncio.Task[None], out: Outgoing) -> None:
        """Write the end of a flight into the ledger, and say a failure to the client."""
        entry, error = flight.entry, None if work.cancelled() else work.exception()
        if work.cancelled() and flight.stop.done():
            error = flight.stop.result()
        if work.cancelled() and error is None:
            self._end(entry, "aborted", "client")
        elif error is None:
            code = out.failed_inside
            self._end(entry, "done" if code is None else "aborted" if code == "aborted" else "failed", code)
        elif isinstance(error, Stalled):
            self._end(entry, "aborted", "client_stalled")
        else:
            typed = error if isinstance(error, EngineError) else self._crash(entry, error)
            self._end(entry, "aborted" if typed.code == "aborted" else "failed", typed.code)
            await out.error(typed)

    def _crash(self, entry: Entry, error: BaseException) -> RequestError:
        log.error("request %s: the router failed", entry.id, exc_info=error)
        return RequestError("internal", "The router failed on this request.", 500)

    def _end(self, entry: Entry, how: End, code: str | None) -> None:
        self._ledger.end(entry, how, code, self._clock(), time.time())

    async def _work(self, flight: Flight, out: Outgoing) -> None:
        refused = 0
        while True:
            pair = await self._admission.pair(flight.entry)
            try:
                await self._both(flight, pair, out)
                return
            except Refused as e:
                self._suspect(e)
                refused += 1
                if refused > 1 or out.started:
                    message = f"No connection to {e.engine.instance}, nor to the engine tried before."
                    raise RequestError("engine_unreachable", message, 502, "Try again later.") from None

    async def _both(self, flight: Flight, pair: Pair, out: Outgoing) -> None:
        """Both legs at once; the first that fails ends the other and is the one that is raised."""
        entry, call, room = flight.entry, flight.call, new_room()
        host, port = pair.prefill.bootstrap or ("", 0)
        content, headers = call.leg_body(host, port, room), call.leg_headers(entry.id)
        self._ledger.dispatch(entry, room, pair.prefill.instance, pair.decode.instance, self._clock())
        to_prefill = Leg("prefill", pair.prefill, call.path, content, headers)
        to_decode = Leg("decode", pair.decode, call.path, content, headers)
        prefill = asyncio.create_task(self._legs.prefill(entry, to_prefill))
        decode = asyncio.create_task(self._legs.decode(entry, to_decode, out))
        try:
            while not decode.done():
                running = {t for t in (prefill, decode) if not t.done()}
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in (prefill, decode):
                    if task.done():
                        task.result()
            await asyncio.wait({prefill}, timeout=_RECEIPT_WAIT)
        finally:
            await cancel(prefill, decode)
