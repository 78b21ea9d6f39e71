"""What the HTTP API holds: submit, abort, admin and state, over the leader's control channel."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from engine.core.errors import RequestError, status_of
from engine.core.types import Request
from engine.group.messages import (
    Abort,
    Admin,
    AdminReply,
    Fatal,
    Out,
    ParentBeat,
    RankBeat,
    Snapshot,
    Submit,
    ToParent,
    Up,
)
from engine.group.outbox import Outbox
from engine.group.parent import Rank

ADMIN_TIMEOUT = 5.0


class GroupClient:
    """Lives on the parent's event loop. One reader thread per rank feeds it."""

    def __init__(self, ranks: list[Rank], loop: asyncio.AbstractEventLoop) -> None:
        self.ranks = ranks
        self.up: Up | None = None
        self.up_event = asyncio.Event()
        self.fatals: list[Fatal] = []
        self.snapshot: dict[str, Any] = {}
        self.snapshot_at: float | None = None
        self._loop = loop
        self._streams: dict[str, asyncio.Queue[Out]] = {}
        self._replies: dict[int, asyncio.Future[AdminReply]] = {}
        self._seq = 0
        self._over: tuple[str, str] | None = None
        self._outboxes = [Outbox(r.control, f"rank-{r.rank}", lambda why: None) for r in ranks]
        self._outbox = self._outboxes[0]
        for rank in ranks:
            threading.Thread(target=self._read, args=(rank,), name=f"rank-{rank.rank}", daemon=True).start()

    def _read(self, rank: Rank) -> None:
        decoder = msgspec.msgpack.Decoder(ToParent)
        try:
            while True:
                message = decoder.decode(rank.control.receive())
                rank.beat = time.monotonic()
                if not isinstance(message, RankBeat):
                    self._loop.call_soon_threadsafe(self._handle, message)
        except (OSError, RuntimeError, msgspec.MsgspecError):
            return  # the rank is gone or this loop is closed; the supervisor sees the process end

    def _handle(self, message: ToParent) -> None:
        handlers: dict[type, Callable[[Any], None]] = {
            Out: self._on_out,
            Snapshot: self._on_snapshot,
            AdminReply: self._on_reply,
            Up: self._on_up,
            Fatal: self._on_fatal,
        }
        handlers[type(message)](message)

    def _on_out(self, out: Out) -> None:
        stream = self._streams.get(out.id)
        if stream is not None:
            stream.put_nowait(out)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot.document
        self.snapshot_at = time.monotonic()

    def _on_reply(self, reply: AdminReply) -> None:
        future = self._replies.pop(reply.seq, None)
        if future is not None and not future.done():
            future.set_result(reply)

    def _on_up(self, up: Up) -> None:
        self.up = up
        self.up_event.set()

    def _on_fatal(self, fatal: Fatal) -> None:
        self.fatals.append(fatal)

    # used by the API --------------------------------------------------------------------------------

    async def submit(self, request: Request) -> AsyncIterator[Out]:
        """Outputs of one request, up to the one that carries `finish` or `code`.

        Closing the iterator early aborts the request. RequestError when the id is in use here.
        """
        if self._over is not None:
            raise RequestError(self._over[0], self._over[1], status_of(self._over[0]))
        if request.id in self._streams:
            raise RequestError("invalid_request", f"Request id {request.id} is in use.", 409)
        stream: asyncio.Queue[Out] = asyncio.Queue()
        self._streams[request.id] = stream
        ended = False
        try:
            self._outbox.put(Submit(request))
            while not ended:
                out = await stream.get()
                ended = out.finish is not None or out.code is not None
                yield out
        finally:
            self._streams.pop(request.id, None)
            if not ended:
                self._outbox.put(Abort(id=request.id, by="client"))

    async def abort(self, id: str, by: str) -> bool:
        """Abort by request id; whether this engine knew the id."""
        return await self._abort(id=id, by=by)

    async def abort_room(self, room: int, by: str) -> bool:
        return await self._abort(room=room, by=by)

    async def _abort(self, **fields: Any) -> bool:
        try:
            reply = await self.admin("abort", fields)
        except RequestError:
            if self._over is None:
                raise
            return False  # it ended with its group
        return bool(reply.get("known"))

    async def admin(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """One admin verb at the leader; RequestError with its code, or 504 when it does not answer."""
        if self._over is not None:
            raise RequestError(self._over[0], self._over[1], status_of(self._over[0]))
        self._seq += 1
        future: asyncio.Future[AdminReply] = self._loop.create_future()
        self._replies[self._seq] = future
        self._outbox.put(Admin(self._seq, verb, args))
        try:
            async with asyncio.timeout(ADMIN_TIMEOUT):
                reply = await future
        except TimeoutError:
            self._replies.pop(self._seq, None)
            raise RequestError(
                "engine_failed", f"The leader did not answer within {ADMIN_TIMEOUT:g} s.", 504
            ) from None
        if reply.code is not None:
            raise RequestError(reply.code, reply.message, reply.status)
        return reply.document

    @property
    def open(self) -> list[str]:
        """Ids of the requests whose answer goes on."""
        return list(self._streams)

    def fail_all(self, code: str, message: str) -> None:
        """End every open stream and verb, and refuse new ones: the ranks are lost or about to stop."""
        self._over = (code, message)
        for id in list(self._streams):
            self._on_out(Out(id=id, code=code, message=message))
        for seq in list(self._replies):
            self._on_reply(AdminReply(seq=seq, code=code, message=message, status=status_of(code)))

    def beat(self) -> None:
        """Tell every rank that this event loop turns."""
        for outbox in self._outboxes:
            outbox.put(ParentBeat())

    def send(self, message: object) -> None:
        self._outbox.put(message)
