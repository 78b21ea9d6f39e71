"""The control link between leaders: one asyncio loop on its own thread.

Prefill listens, decode dials and keeps its known prefills linked. A broken connection is a lost peer at
once, a silent one at the heartbeat deadline; another life of an instance fences the one before it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from engine.core.settings import Settings
from engine.transfer import handshake as h
from engine.transfer import messages as m
from engine.transfer.connection import Connection, Strangers, bind, said
from engine.transfer.handshake import Identity, Peer, PeerKey

log = logging.getLogger("pdctl.engine.transfer")

PING_SECONDS = 1.0
BACKOFF = (0.1, 2.0)
# An address counts as gone when it has refused connections this long, and one that requests named and
# that never answered is forgotten after that long.
GONE_SECONDS = 1.0
FORGET_SECONDS = 60.0


class LinkEvents(Protocol):
    """Called on the link's thread, in order; must not block. `lost` follows every `connected`."""

    def connected(self, peer: Peer) -> None:
        """Authenticated and compatible: add its agents, then call `edge_ready` or `edge_failed`."""

    def up(self, peer: Peer) -> None:
        """Both sides said Linked."""

    def lost(self, peer: PeerKey, reason: str) -> None: ...

    def fenced(self, peer: PeerKey) -> None:
        """That life is over: another one came in its place, or its address refuses connections."""

    def refused(self, address: str, code: str, message: str) -> None:
        """A dial ended without a link; `code` is empty when it may just be too early."""

    def renew(self, peer: PeerKey) -> None:
        """Not linked now, on purpose: add its agents anew when it comes back."""

    def forgotten(self, address: str) -> None:
        """An address that never linked is dialed no more."""

    def message(self, peer: PeerKey, message: m.RoomMessage) -> None: ...


class Link:
    """`send`, `demand`, `edge_ready`, `edge_failed` and `stop` may be called from any thread."""

    def __init__(
        self,
        me: Identity,
        token: bytes,
        settings: Settings,
        events: LinkEvents,
        expired: Callable[[str, str, float, float, object], None],
        legacy: bool = False,
    ) -> None:
        self._me, self._token, self._settings, self._events = me, token, settings, events
        self._expired, self._legacy = expired, legacy
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._sock: socket.socket | None = None
        self._by_key: dict[PeerKey, Connection] = {}
        self._lives: dict[str, str] = {}
        self._fenced: set[PeerKey] = set()
        self._wakes: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping, self._strangers = False, Strangers()
        self.dropped = 0

    def start(self, host: str, port: int | None, peers: list[str]) -> int | None:
        """Listen on host:port unless port is None, dial `peers`; the bound port. ConfigError when in use."""
        if port is not None:
            self._sock = bind(host, port)
            port = self._sock.getsockname()[1]
        self._thread.start()
        if self._sock is not None:
            self._post(lambda: self._spawn(self._listen()))
        for address in peers:
            self._post(partial(self._demand, address, True))
        return port

    def stop(self) -> None:
        """Close every connection and end the thread."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._shutdown(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        if self._sock is not None:
            self._sock.close()

    def send(self, peer: PeerKey, message: m.RoomMessage) -> None:
        """Queue a room message; dropped when the peer is not linked."""
        self._post(lambda: self._say(peer, message))

    def demand(self, address: str) -> None:
        """Keep a prefill linked from now on; a waiting redial happens at once."""
        self._post(lambda: self._demand(address))

    def relink(self, peer: PeerKey) -> None:
        """Give up its connection, if there is one, and what is held of it: it links anew."""
        self._post(lambda: self._relink(peer))

    def edge_ready(self, peer: PeerKey) -> None:
        """Our ranks have added its agents and the paths are warm."""
        self._post(lambda: self._edge_ready(peer))

    def edge_failed(self, peer: PeerKey, error: str) -> None:
        self._post(lambda: self._drop_key(peer, f"its agents could not be added: {error}"))

    def heard_at(self, peer: PeerKey) -> float | None:
        """Monotonic time of the last bytes from it, None when not connected."""
        conn = self._by_key.get(peer)
        return conn.last_heard if conn else None

    def _post(self, call: Callable[[], object]) -> None:
        if not self._stopping:
            self._loop.call_soon_threadsafe(call)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("link task ended", exc_info=task.exception())

    async def _shutdown(self) -> None:
        self._stopping = True
        for conn in list(self._by_key.values()):
            self._drop(conn, "this engine is stopping")
        tasks = [t for t in self._tasks if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._sock)
        async with server:
            await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn = Connection(reader, writer, self._loop.time())
        self._spawn(self._answer(self._strangers.admit(conn)))

    async def _answer(self, conn: Connection) -> None:
        """Prefill's side of a new connection, until it ends."""
        mine = secrets.token_bytes(h.NONCE_BYTES)
        try:
            conn.send(m.Challenge(mine))
            async with asyncio.timeout(self._settings["handshake"]):
                hello = await conn.receive()
            if not isinstance(hello, m.Hello):
                raise m.ProtocolError("a Hello was expected")
            key = PeerKey(hello.instance, hello.incarnation)
            refuse = h.refusal(hello, self._me, self._token, mine)
            if refuse is None and key in self._fenced:
                text = f"Another {hello.instance} has taken this one's place."
                refuse = m.Refuse("link_failed", "incarnation", text)
            if refuse is not None:
                log.warning("link_refused peer=%s at=%s %s", key, conn.remote, refuse.message)
                conn.send(refuse)
                return
            expects = self._lives.get(hello.instance)
            conn.send(h.welcome(self._me, self._token, expects, mine, hello.nonce))
            self._replace(key)
            await self._serve(conn, Peer.of(hello, conn.remote))
        except TimeoutError:
            self._late("handshake", conn.remote, conn.opened_at)
        except (OSError, m.ProtocolError) as error:
            log.info("link_ended at=%s before a Hello: %s", conn.remote, error)
        finally:
            conn.close()

    def _demand(self, address: str, forever: bool = False) -> None:
        wake = self._wakes.get(address)
        if wake is None:
            wake = self._wakes[address] = asyncio.Event()
            self._spawn(self._keep(address, wake, forever))
        wake.set()

    async def _keep(self, address: str, wake: asyncio.Event, forever: bool) -> None:
        """Decode's side: stay linked with one prefill address, `forever` or while it is of use."""
        backoff, last = BACKOFF[0], None
        refused_since: float | None = None
        useful_at = self._loop.time()
        while forever or last is not None or self._loop.time() - useful_at < FORGET_SECONDS:
            wake.clear()
            started = self._loop.time()
            try:
                last, refused_since = await self._dial(address, last), None
            except ConnectionRefusedError:
                refused_since = started if refused_since is None else refused_since
                self._events.refused(address, "", "The connection was refused.")
                if last is not None and self._loop.time() - refused_since >= GONE_SECONDS:
                    self._events.fenced(last)
                    last = None
            if self._loop.time() - started > BACKOFF[1]:
                backoff, useful_at = BACKOFF[0], self._loop.time()
            try:
                async with asyncio.timeout(backoff):
                    await wake.wait()
                useful_at = self._loop.time()
            except TimeoutError:
                backoff = min(backoff * 2, BACKOFF[1])
        del self._wakes[address]
        self._events.forgotten(address)

    async def _dial(self, address: str, last: PeerKey | None) -> PeerKey | None:
        """One connection until it ends; the peer's key once it said Welcome. Raises only when refused."""
        host, _, port = address.rpartition(":")
        began = self._loop.time()
        try:
            async with asyncio.timeout(self._settings["connect"]):
                reader, writer = await asyncio.open_connection(host, int(port))
        except TimeoutError:
            self._late("connect", address, began)
            self._events.refused(address, "", "No answer within PD_CONNECT_TIMEOUT.")
            return last
        except ConnectionRefusedError:
            raise
        except (OSError, ValueError) as error:
            self._events.refused(address, "", f"Cannot connect: {said(error)}.")
            return last
        conn = Connection(reader, writer, self._loop.time())
        try:
            async with asyncio.timeout(self._settings["handshake"]):
                peer = await self._introduce(conn, address, last)
            if peer is None:
                return last
            if last is not None and last != peer.key:
                self._events.fenced(last)
            await self._serve(conn, peer)
            return peer.key
        except TimeoutError:
            self._late("handshake", address, conn.opened_at)
            self._events.refused(address, "", "No Welcome within PD_HANDSHAKE_TIMEOUT.")
        except (OSError, m.ProtocolError) as error:
            self._events.refused(address, "", f"The handshake broke: {said(error)}.")
        finally:
            conn.close()
        return last

    async def _introduce(self, conn: Connection, address: str, last: PeerKey | None) -> Peer | None:
        challenge = await conn.receive()
        if not isinstance(challenge, m.Challenge):
            raise m.ProtocolError("a Challenge was expected")
        mine = secrets.token_bytes(h.NONCE_BYTES)
        expects = last.incarnation if last else None
        conn.send(h.hello(self._me, self._token, expects, mine, challenge.nonce))
        answer = await conn.receive()
        refuse = answer if isinstance(answer, m.Refuse) else None
        if isinstance(answer, m.Welcome):
            refuse = h.refusal(answer, self._me, self._token, mine)
            if refuse is None:
                return Peer.of(answer, address)
        if refuse is None:
            raise m.ProtocolError("a Welcome was expected")
        code = "peer_incompatible" if refuse.code == "peer_incompatible" else "link_failed"
        log.warning("link_refused address=%s field=%s %s", address, refuse.field, refuse.message)
        self._events.refused(address, code, refuse.message)
        return None

    async def _serve(self, conn: Connection, peer: Peer) -> None:
        """An authenticated connection until it ends. Does not raise for what a peer may do."""
        conn.trust(peer, m.MAX_FRAME, self._me.incarnation)
        self._by_key[peer.key] = conn
        self._events.connected(peer)
        watch = self._loop.create_task(self._watch(conn))
        reason = "this engine is stopping"
        try:
            while not conn.dropped:
                self._dispatch(conn, peer, await conn.receive())
        except (OSError, m.ProtocolError) as error:
            reason = said(error)
        except Exception as error:
            log.exception("link_broken peer=%s", peer.key)
            reason = f"an internal error: {type(error).__name__}"
        finally:
            watch.cancel()
            self._drop(conn, reason)

    def _replace(self, peer: PeerKey) -> None:
        """One connection an instance: the newest one. Another life of it fences the one before for good."""
        before = self._lives.get(peer.instance)
        self._lives[peer.instance] = peer.incarnation
        if before is None:
            return
        old = PeerKey(peer.instance, before)
        self._drop_key(old, "it made a new connection")
        if old != peer and not self._legacy:
            self._fenced.add(old)
            self._events.fenced(old)

    def _dispatch(self, conn: Connection, peer: Peer, frame: m.Frame) -> None:
        if not isinstance(frame, m.Envelope):
            raise m.ProtocolError("an envelope was expected")
        if (frame.src, frame.dst) != (peer.key.incarnation, self._me.incarnation):
            self.dropped += 1
            return
        match frame.body:
            case m.Linked():
                conn.theirs_ready = True
                self._check_up(conn)
            case m.Ping():
                conn.say(m.Pong())
            case m.Pong():
                pass
            case message if conn.up:
                self._events.message(peer.key, message)
            case _:
                self.dropped += 1

    async def _watch(self, conn: Connection) -> None:
        """Pings, and the two deadlines of a live connection: silence, and Linked that does not come."""
        before = self._loop.time()
        while not conn.dropped:
            silence = self._settings["heartbeat"]
            await asyncio.sleep(min(0.2, silence / 4))
            now = self._loop.time()
            if now - before > 1.0:  # this process itself was frozen: what arrived meanwhile is still unread
                conn.last_heard = max(conn.last_heard, now - silence + min(1.0, silence / 2))
            before = now
            if now - conn.last_ping >= min(PING_SECONDS, silence / 3):
                conn.last_ping = now
                self._try(conn, m.Ping())
            if now - conn.last_heard > silence:
                self._late("heartbeat", conn.peer and conn.peer.key, conn.last_heard)
                self._drop(conn, f"it was silent for PD_HEARTBEAT_TIMEOUT={silence:g} s")
            elif not conn.up and now - conn.opened_at > self._settings["handshake"]:
                self._late("handshake", conn.peer and conn.peer.key, conn.opened_at)
                self._drop(conn, "the link was not ready within PD_HANDSHAKE_TIMEOUT")

    def _late(self, name: str, peer: object, since: float) -> None:
        """One of this loop's deadlines has passed."""
        code = "peer_lost" if name == "heartbeat" else "link_failed"
        self._expired(code, name, self._settings[name], self._loop.time() - since, peer)

    def _say(self, peer: PeerKey, message: m.RoomMessage) -> None:
        conn = self._by_key.get(peer)
        if conn is not None and conn.up:
            self._try(conn, message)

    def _try(self, conn: Connection, body: m.Body) -> None:
        try:
            conn.say(body)
        except (OSError, m.ProtocolError) as error:
            self._drop(conn, said(error))

    def _edge_ready(self, peer: PeerKey) -> None:
        conn = self._by_key.get(peer)
        if conn is not None and not conn.ours_ready:
            conn.ours_ready = True
            self._try(conn, m.Linked())
            self._check_up(conn)

    def _check_up(self, conn: Connection) -> None:
        if conn.ours_ready and conn.theirs_ready and not conn.up and not conn.dropped and conn.peer:
            conn.up = True
            self._events.up(conn.peer)

    def _relink(self, peer: PeerKey) -> None:
        self._drop_key(peer, "a new link was asked for")
        self._events.renew(peer)

    def _drop_key(self, peer: PeerKey, reason: str) -> None:
        conn = self._by_key.get(peer)
        if conn is not None:
            self._drop(conn, reason)

    def _drop(self, conn: Connection, reason: str) -> None:
        """Give a connection up, once."""
        if conn.dropped or conn.peer is None:
            return
        conn.dropped = True
        if self._by_key.get(conn.peer.key) is conn:
            del self._by_key[conn.peer.key]
        conn.abort()
        log.info("link_lost peer=%s %s", conn.peer.key, reason)
        self._events.lost(conn.peer.key, reason)
