"""Engines that a test conducts, on real sockets, and a router before them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.core.settings import Settings
from engine.http.gone import until_gone
from engine.http.marks import mark_line
from engine.http.serve import listen, serve
from engine.router.app import build_router
from engine.router.config import RouterConfig
from engine.router.core import Router
from engine.router.pairs import Engine

TOKEN = "fleet"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
_lives = itertools.count(1)


def error_body(code: str) -> dict[str, Any]:
    return {"error": {"message": f"It was {code}.", "type": "server_error", "code": code, "param": None}}


def token_event(i: int) -> bytes:
    return b"data: " + msgspec.json.encode({"choices": [{"text": f"t{i}"}]}) + b"\n\n"


@dataclass
class Stub:
    """One engine. `script` decides what an inference request gets; the default answers at once."""

    name: str
    role: str
    ready: bool = True
    silent: bool = False  # answers no poll
    requests: list[dict[str, Any]] = field(default_factory=list)  # shown in /v1/state
    seen: list[dict[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    active: int = 0
    most: int = 0
    dropped: int = 0
    tokens: int = 3
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    fail: tuple[int, str] | None = None
    fail_after: int | None = None  # decode: break the connection after this many tokens
    failures: int = 1 << 30  # how many streams that happens to
    marks: bool = True  # decode: token ids beside events, and goes on after earlier ones, where asked to
    error_code: str = "engine_failed"
    error_after: int | None = None  # decode: an error event after this many tokens
    error_each: int | None = None  # decode: an error event after this many new tokens of each try
    pause_after: int | None = None  # wait for the gate: prefill at once, decode after this many tokens
    url: str = ""
    port: int = 0
    incarnation: str = ""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._stop, up = asyncio.Event(), asyncio.Event()
        self.incarnation = f"{next(_lives):016x}"
        sock = listen("127.0.0.1", self.port)
        self.port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._task = asyncio.create_task(
            serve(self, "", 0, stop=self._stop, sock=sock, grace=1, started=up.set)
        )
        await asyncio.wait_for(up.wait(), 10)

    async def end(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.wait_for(self._task, 20)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        request = Request(scope, receive)
        if request.method == "GET":
            await self._report(scope["path"])(scope, receive, send)
            return
        self.seen.append(msgspec.json.decode(await request.body()))
        self.ids.append(request.headers["x-request-id"])
        self.active += 1
        self.most = max(self.most, self.active)
        answer = self._prefill if self.role == "prefill" else self._decode
        whole = await until_gone(receive, answer(self.seen[-1], scope, receive, send))
        self.active -= 1
        self.dropped += not whole

    def _report(self, path: str) -> Response:
        state = {
            "instance": self.name,
            "role": self.role,
            "incarnation": self.incarnation,
            "requests": self.requests,
        }
        document = {
            "/v1/state": state,
            "/ready": {"ready": self.ready, "reasons": [] if self.ready else ["told so"]},
        }
        if self.silent:
            document = {}
        return Response(msgspec.json.encode(document.get(path, {})), 200 if self.ready else 503)

    async def _prefill(self, body: dict[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
        if self.pause_after is not None:
            await self.gate.wait()
        status, document = (
            (200, {"ok": True}) if self.fail is None else (self.fail[0], error_body(self.fail[1]))
        )
        await Response(msgspec.json.encode(document), status)(scope, receive, send)

    async def _decode(self, body: dict[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
        if self.pause_after == 0:
            await self.gate.wait()
        if self.fail is not None:
            await Response(msgspec.json.encode(error_body(self.fail[1])), self.fail[0])(scope, receive, send)
        elif not body.get("stream"):
            await Response(msgspec.json.encode({"text": "whole"}), 200, media_type="application/json")(
                scope, receive, send
            )
        else:
            await self._stream(body.get("resumable") if self.marks else None, send)

    async def _stream(self, resumable: dict[str, Any] | None, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        start = len(resumable["tokens"]) if resumable else 0
        for i in range(start, self.tokens):
            if i and i == self.pause_after:
                await self.gate.wait()
            if self.failures and (i in (self.fail_after, self.error_after) or i - start == self.error_each):
                self.failures -= 1
                if i == self.fail_after:
                    return  # an answer without an end: the server closes the connection
                event = b"data: " + msgspec.json.encode(error_body(self.error_code)) + b"\n\n"
                await send({"type": "http.response.body", "body": event, "more_body": False})
                return
            mark = mark_line([100 + i], i == self.tokens - 1) if resumable else b""
            await send({"type": "http.response.body", "body": mark + token_event(i), "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


@dataclass
class Rig:
    """A router, its engines and a client."""

    router: Router
    http: httpx.AsyncClient
    stubs: dict[str, Stub]

    def __getitem__(self, name: str) -> Stub:
        return self.stubs[name]

    async def post(self, stream: bool = False, id: str | None = None, **fields: Any) -> httpx.Response:
        headers = {} if id is None else {"X-Request-ID": id}
        body = {"prompt": "p", "stream": stream, **fields}
        return await self.http.post("/v1/completions", json=body, headers=headers)

    async def admin(self, verb: str, **args: Any) -> dict[str, Any]:
        answer = await self.http.post(f"/admin/{verb}", json=args, headers=BEARER)
        answer.raise_for_status()
        return dict(answer.json())

    async def ended(self, count: int = 1) -> list[tuple[str, str | None]]:
        """How requests ended; a client can have its answer a moment before the ledger has its end."""
        await until(lambda: len(self.router.ledger.recent) >= count)
        return [(e.ended, e.code) for e in self.router.ledger.recent]

    def engine(self, name: str) -> Engine:
        return self.router.pairs.engines[name]


@asynccontextmanager
async def rig(
    layout: dict[str, tuple[str, ...]] | None = None, *, wait_ready: bool = True, **env: str
) -> AsyncIterator[Rig]:
    """A router over `layout` (cell: engine names, p… are prefills), with settings as TOTAL, IDLE, TRIES."""
    layout = layout or {"a": ("p0", "d0")}
    stubs = {n: Stub(n, "prefill" if n[0] == "p" else "decode") for names in layout.values() for n in names}
    for stub in stubs.values():
        await stub.start()
    engines = [
        Engine(
            n, "prefill" if n[0] == "p" else "decode", cell, stubs[n].url, ("h", 9) if n[0] == "p" else None
        )
        for cell, names in layout.items()
        for n in names
    ]
    settings = Settings.from_env(
        {f"PD_ROUTER_{k}" + ("" if k == "TRIES" else "_TIMEOUT"): v for k, v in env.items()}
    )
    async with AsyncExitStack() as stack:
        for stub in stubs.values():
            stack.push_async_callback(stub.end)
        sock = stack.enter_context(listen("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        router = Router(RouterConfig("router", "127.0.0.1", 0, tuple(engines), "tiny"), settings, TOKEN)
        stop, up = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(
            serve(build_router(router), "", 0, stop=stop, sock=sock, grace=1, started=up.set)
        )
        stack.push_async_callback(_stop, stop, serving)
        await asyncio.wait_for(up.wait(), 10)
        limits = httpx.Limits(max_connections=None)
        http = httpx.AsyncClient(base_url=url, trust_env=False, timeout=30, limits=limits)
        await stack.enter_async_context(http)
        if wait_ready:
            await until(lambda: all(e.ready for e in router.pairs.engines.values()))
        yield Rig(router, http, stubs)


async def _stop(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    stop.set()
    await asyncio.wait_for(serving, 20)


async def until(check: Callable[[], Any], seconds: float = 15.0) -> None:
    """Poll until `check()` is true."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.005)
