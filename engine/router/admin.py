"""Admin verbs of the router: hold, drain, resume, abort, cordon, timeouts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.http.auth import require_admin
from engine.http.body import convert_args, read_object
from engine.http.errors import json_response
from engine.http.timeouts import set_timeouts
from engine.router.core import Router

Answer = dict[str, Any]
Name = Annotated[str, Meta(min_length=1, max_length=256)]


class NoArgs(msgspec.Struct):
    pass


class HoldArgs(msgspec.Struct):
    timeout: Annotated[float, Meta(gt=0, le=86400)] | None = None


class DrainArgs(msgspec.Struct):
    timeout: Annotated[float, Meta(ge=0, le=3600)] | None = None


class AbortArgs(msgspec.Struct):
    id: Name


class CordonArgs(msgspec.Struct):
    engine: Name
    cordoned: bool


class Admin:
    """Each verb answers with what is true after it."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def _admission(self) -> dict[str, Any]:
        state = self._router.state()
        return {name: state[name] for name in ("admission", "held", "hold_age_s")}

    def hold(self, document: dict[str, Any]) -> dict[str, Any]:
        """`timeout` stands in for PD_ROUTER_HOLD_TIMEOUT during this hold; it does not end the hold."""
        self._router.admission.hold(convert_args(document, HoldArgs).timeout)
        return self._admission()

    async def drain(self, document: dict[str, Any]) -> dict[str, Any]:
        """Hold, and wait until no engine has a leg, PD_DRAIN_TIMEOUT or `timeout` at most; ends nothing."""
        limit = convert_args(document, DrainArgs).timeout
        self._router.admission.hold()
        until = time.monotonic() + (self._router.settings["drain"] if limit is None else limit)
        while (active := self._active()) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return {**self._admission(), "drained": not active, "active": active}

    def _active(self) -> int:
        return sum(engine.active for engine in self._router.pairs.engines.values())

    def resume(self, document: dict[str, Any]) -> dict[str, Any]:
        convert_args(document, NoArgs)
        self._router.admission.resume()
        return self._admission()

    def abort(self, document: dict[str, Any]) -> dict[str, Any]:
        return {"aborted": self._router.abort(convert_args(document, AbortArgs).id)}

    def cordon(self, document: dict[str, Any]) -> dict[str, Any]:
        args = convert_args(document, CordonArgs)
        engine = self._router.pairs.cordon(args.engine, args.cordoned)
        self._router.admission.changed()
        return {"engine": engine.instance, "cordoned": engine.cordoned, "active": engine.active}

    def timeouts(self, document: dict[str, Any]) -> dict[str, Any]:
        changed = set_timeouts(self._router.settings, document, time.time())
        self._router.admission.changed()
        return dict(changed)

    def _route(self, name: str, verb: Callable[[dict[str, Any]], Answer | Awaitable[Answer]]) -> Route:
        async def handle(request: Request) -> Response:
            require_admin(request, self._router.token)
            answer = verb(await read_object(request))
            return json_response(answer if isinstance(answer, dict) else await answer)

        return Route(f"/admin/{name}", handle, methods=["POST"])

    def routes(self) -> list[Route]:
        verbs: dict[str, Callable[[dict[str, Any]], Answer | Awaitable[Answer]]] = {
            "hold": self.hold,
            "drain": self.drain,
            "resume": self.resume,
            "abort": self.abort,
            "cordon": self.cordon,
            "timeouts": self.timeouts,
        }
        return [self._route(name, verb) for name, verb in verbs.items()]
