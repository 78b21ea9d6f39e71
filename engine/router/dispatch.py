"""One request through the router: admission, both legs at once, again where an engine was lost, one end."""

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
from engine.core.settings import Settings
from engine.http.gone import Stalled, cancel, disconnected
from engine.router.call import Call
from engine.router.hold import Admission
from engine.router.ledger import End, Entry, Ledger
from engine.router.legs import Leg, Legs, Refused
from engine.router.outgoing import Outgoing
from engine.router.pairs import Pair, Pairs
from engine.router.tries import Tries

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
        pairs: Pairs,
        legs: Legs,
        settings: Settings,
        clock: Callable[[], float],
        suspect: Callable[[Refused], None],
    ) -> None:
        self._ledger = ledger
        self._admission = admission
        self._pairs = pairs
        self._legs = legs
        self._settings = settings
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
            self._end(entry, "done", None)
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
        entry, tries = flight.entry, Tries(round(self._settings["router_tries"]))
        while True:
            try:
                pair = await self._admission.pair(entry, tries.failed, out.started)
            except RequestError as e:
                raise tries.explained(e) from None
            has = len(out.stream.tokens)
            try:
                await self._both(flight, pair, out, tries.limit > 1)
                return
            except RequestError as e:
                error = self._failed(e, pair, tries, out, len(out.stream.tokens) > has)
            if error is not None:
                raise error
            log.info("request %s goes on after %d tokens: %s", entry.id, len(out.stream.tokens), tries)
            out.stream.begin()
            self._ledger.again(entry, self._clock())

    def _failed(
        self, error: RequestError, pair: Pair, tries: Tries, out: Outgoing, progress: bool
    ) -> RequestError | None:
        """None for another try, else the error to end with."""
        if isinstance(error, Refused):
            self._suspect(error)
        if out.finished or (out.started and not out.stream.resumable):
            return error
        return tries.again(pair, error, self._pairs, self._clock(), progress)

    async def _both(self, flight: Flight, pair: Pair, out: Outgoing, resumable: bool) -> None:
        """Both legs at once; the first that fails ends the other and is the one that is raised.

        Once decode answers it has the KV, and what becomes of prefill is nothing to this request any more.
        """
        entry, call, room = flight.entry, flight.call, new_room()
        host, port = pair.prefill.bootstrap or ("", 0)
        so_far = call.resumable(entry.id, out.stream.tokens) if resumable and call.stream else None
        content, headers = call.leg_body(host, port, room, so_far), call.leg_headers(entry.id)
        self._ledger.dispatch(entry, room, pair.prefill.instance, pair.decode.instance, self._clock())
        to_prefill = Leg("prefill", pair.prefill, call.path, content, headers)
        to_decode = Leg("decode", pair.decode, call.path, content, headers)
        prefill = asyncio.create_task(self._legs.prefill(entry, to_prefill))
        decode = asyncio.create_task(self._legs.decode(entry, to_decode, out))
        running = {prefill, decode}
        try:
            while not decode.done():
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if prefill in running and prefill.done():
                    running.discard(prefill)
                    if entry.stage != "streaming":
                        prefill.result()
            decode.result()
            await asyncio.wait({prefill}, timeout=_RECEIPT_WAIT)
        finally:
            await cancel(prefill, decode)
            running.clear()
            del prefill, decode  # a failed one's traceback holds this frame, and with it the bodies
