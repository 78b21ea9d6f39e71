"""The router's HTTP front, and `python -m engine router`."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from engine.core.errors import RequestError
from engine.core.notify import notify
from engine.core.settings import Settings
from engine.http.auth import FLEET_TOKEN_FILE, token_from
from engine.http.errors import HANDLERS, json_response
from engine.http.gone import cancel
from engine.http.ids import request_id
from engine.http.metrics import metrics_route
from engine.http.models import model_routes
from engine.http.serve import listen, serve, stop_on_signals
from engine.router.admin import Admin
from engine.router.call import read_call
from engine.router.config import RouterConfig, parse_args
from engine.router.core import Router
from engine.router.documents import requests_document
from engine.router.metrics import router_registry
from engine.router.outgoing import Outgoing

log = logging.getLogger(__name__)

PROXIED = ("/v1/completions", "/v1/chat/completions", "/generate")
# After the grace of a stop, for the error events of what still ran.
_LAST_WORDS = 2.0


class Proxy:
    """The inference routes: one flight each."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if self._router.stopping:
            raise RequestError("draining", "The router is stopping.", 503, "Try again later.")
        call = await read_call(request)
        id = request_id(request, self._router.ledger.live)
        out = Outgoing(id, scope, receive, send)
        await self._router.dispatcher.run(id, call, out, receive)


class Reports:
    """What the router says of itself."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def health(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        reasons = self._router.reasons()
        return json_response({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def state(self, _: Request) -> Response:
        return json_response(self._router.state())

    async def requests(self, _: Request) -> Response:
        router = self._router
        document = requests_document(router.ledger, router.config.instance, time.monotonic(), time.time())
        return json_response(document)

    def _model(self) -> dict[str, Any]:
        return {"created": int(self._router.started_at)}

    def routes(self) -> list[Route]:
        paths = {
            "/health": self.health,
            "/ready": self.ready,
            "/v1/state": self.state,
            "/v1/requests": self.requests,
        }
        models = model_routes(self._router.config.served_model_name, self._model)
        return [*models, *(Route(path, handler, methods=["GET"]) for path, handler in paths.items())]


def build_router(router: Router) -> Starlette:
    """All routes; polling and deadlines run for the life of the app."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with router.running():
            yield

    proxy = Proxy(router)
    routes = [
        *(Route(path, proxy, methods=["POST"]) for path in PROXIED),
        *Reports(router).routes(),
        *Admin(router).routes(),
        metrics_route(router_registry(router, time.monotonic)),
    ]
    return Starlette(routes=routes, exception_handlers=HANDLERS, lifespan=lifespan)


async def _drain(router: Router, stop: asyncio.Event, grace: float) -> None:
    await stop.wait()
    notify("STOPPING=1")
    await router.drain(grace)


def _up(router: Router) -> None:
    log.info("%s is serving on %s", router.config.instance, router.address)
    notify(f"READY=1\nSTATUS=serving on {router.address}")


async def _serve(config: RouterConfig, settings: Settings, token: str | None) -> None:
    stop = stop_on_signals()
    with listen(config.host, config.port) as sock:
        router = Router(config, settings, token)
        router.address = f"{config.host}:{sock.getsockname()[1]}"
        grace = settings["drain"]
        draining = asyncio.create_task(_drain(router, stop, grace))
        await serve(
            build_router(router),
            config.host,
            config.port,
            stop=stop,
            sock=sock,
            grace=grace + _LAST_WORDS,
            started=lambda: _up(router),
        )
        await cancel(draining)


def run_router(argv: Sequence[str]) -> int:
    """Run the router until SIGTERM or SIGINT; ConfigError or PortInUse when it cannot start."""
    config = parse_args(argv)
    settings = Settings.from_env(os.environ)
    settings.check_order("router")
    asyncio.run(_serve(config, settings, token_from(os.environ, FLEET_TOKEN_FILE)))
    return 0
