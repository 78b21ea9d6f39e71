"""The routes: GET and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pdctl.errors import PdctlError
from pdctl.supervisor.web.access import OPEN, Access
from pdctl.supervisor.web.metrics import CONTENT_TYPE, exposition
from pdctl.supervisor.web.sources import Sources

STREAMS = 32  # browsers that are told of changes at once; others ask by themselves
_TICK, _BEAT = 0.25, 15.0  # seconds: how soon a change is told, how often an idle stream says that it lives
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/plot.js": ("plot.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
}


class App:
    """`stopping` ends streams when the server is to end."""

    def __init__(self, sources: Sources, stopping: Callable[[], bool]) -> None:
        self._sources, self._stopping = sources, stopping
        self._streams = 0

    def asgi(self, token: str | None) -> Access:
        routes = [Route(path, _file(*file)) for path, file in _FILES.items()]
        routes += [
            Route(OPEN, self._healthz),
            Route("/metrics", self._metrics),
            Route("/api/now", self._now),
            Route("/api/history", self._history),
            Route("/api/incidents", self._incidents),
            Route("/api/events", self._events),
            Route("/evidence/{incident:int}", self._evidence),
        ]
        app = Starlette(routes=routes, exception_handlers={PdctlError: _failed})
        # A thousand engines are 800 kB as they stand; a stream of events is left as it is.
        return Access(GZipMiddleware(app, minimum_size=4096, compresslevel=1), token)

    async def _healthz(self, request: Request) -> Response:
        unwell = self._sources.live.unwell
        return PlainTextResponse(f"{unwell or 'ok'}\n", 503 if unwell else 200)

    async def _metrics(self, request: Request) -> Response:
        text = await run_in_threadpool(exposition, self._sources)
        return Response(text, media_type=CONTENT_TYPE)

    async def _now(self, request: Request) -> Response:
        return await _json(self._sources.now)

    async def _history(self, request: Request) -> Response:
        query = request.query_params
        names = [name for name in query.get("names", "").split(",") if name]
        kind, seconds = query.get("kind", "fleet"), _number(query.get("seconds", "3600"), 3600.0)
        return await _json(lambda: self._sources.history(kind, names, seconds))

    async def _incidents(self, request: Request) -> Response:
        last = int(_number(request.query_params.get("last", "50"), 50))
        return await _json(lambda: self._sources.incidents(max(1, min(last, 500))))

    async def _events(self, request: Request) -> Response:
        if self._streams >= STREAMS:
            return PlainTextResponse("Too many pages listen already; ask /api/now.\n", 503)
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._changes(), headers=headers, media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[str]:
        """A line for every change, and one now and then so that a dead connection is noticed."""
        self._streams += 1
        try:
            known, quiet = -1, 0.0
            while not self._stopping():
                version = self._sources.live.version
                if version != known or quiet >= _BEAT:
                    known, quiet = version, 0.0
                    yield f"data: {version}\n\n"
                await asyncio.sleep(_TICK)
                quiet += _TICK
        finally:
            self._streams -= 1

    async def _evidence(self, request: Request) -> Response:
        """The page of the bundle that was kept for an incident, as diagnose draws it."""
        bundle = await run_in_threadpool(self._sources.bundle, request.path_params["incident"])
        draw = self._sources.evidence
        if bundle is None or draw is None:
            return PlainTextResponse("No evidence is kept for this incident any more.\n", 404)
        text = await run_in_threadpool(_drawn, draw, bundle)
        return HTMLResponse(
            text, headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        )


def _drawn(draw: Callable[[Path], str], bundle: Path) -> str:
    return draw(bundle)


def _number(text: str, otherwise: float) -> float:
    try:
        found = float(text)
    except ValueError:
        return otherwise
    return found if found == found and abs(found) < 1e9 else otherwise


async def _json(make: Callable[[], dict[str, Any]]) -> Response:
    """Made on a thread: reading the file must not hold up who else is served."""
    return JSONResponse(await run_in_threadpool(make))


async def _failed(request: Request, error: Exception) -> Response:
    document = error.document() if isinstance(error, PdctlError) else {"message": str(error)}
    return JSONResponse({"error": document}, 503)


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    body = resources.files("pdctl.supervisor.web").joinpath("static", name).read_bytes()

    def answer(request: Request) -> Response:
        return Response(body, headers={"Content-Type": kind})

    return answer
