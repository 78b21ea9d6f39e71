"""Admin verbs of an engine: abort, drain, resume, relink, timeouts, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.api.client import GroupClient
from engine.core.errors import RequestError
from engine.http.auth import require_admin, require_drill
from engine.http.body import convert_args, read_object
from engine.http.errors import ParamError, json_response

# The group answers a verb within a step or two; a drain may take as long as it was given on top.
_VERB_DEADLINE = 15.0
Seconds = Annotated[float, Meta(ge=0, le=86400)]


class NoArgs(msgspec.Struct):
    pass


class AbortArgs(msgspec.Struct):
    id: str | None = None
    room: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None


class DrainArgs(msgspec.Struct, omit_defaults=True):
    timeout: Seconds | None = None


class RelinkArgs(msgspec.Struct):
    peer: Annotated[str, Meta(min_length=1, max_length=256)]


class FaultArgs(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    armed: bool
    count: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    value: Seconds = 0.0


class Admin:
    """Every verb: check the token, check the arguments, pass them to the group."""

    def __init__(self, client: GroupClient, token: str | None, drill: str | None) -> None:
        self._client = client
        self._token = token
        self._drill = drill

    async def _tell(self, verb: str, args: dict[str, Any], extra: float = 0.0) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_VERB_DEADLINE + extra):
                return await self._client.admin(verb, args)
        except TimeoutError:
            hint = "Look at its snapshot_age_s in /v1/state."
            raise RequestError("admin_timeout", f"The engine did not answer {verb}.", 504, hint) from None

    async def abort(self, document: dict[str, Any]) -> dict[str, Any]:
        args = convert_args(document, AbortArgs)
        if (args.id is None) == (args.room is None):
            raise ParamError("id", "Give either id or room.")
        async with asyncio.timeout(_VERB_DEADLINE):
            if args.id is not None:
                return {"aborted": await self._client.abort(args.id, "admin")}
            return {"aborted": await self._client.abort_room(args.room or 0, "admin")}

    async def drain(self, document: dict[str, Any]) -> dict[str, Any]:
        args = convert_args(document, DrainArgs)
        return await self._tell("drain", msgspec.to_builtins(args), args.timeout or 0.0)

    async def resume(self, document: dict[str, Any]) -> dict[str, Any]:
        convert_args(document, NoArgs)
        return await self._tell("resume", {})

    async def relink(self, document: dict[str, Any]) -> dict[str, Any]:
        return await self._tell("relink", msgspec.to_builtins(convert_args(document, RelinkArgs)))

    async def timeouts(self, document: dict[str, Any]) -> dict[str, Any]:
        return await self._tell("timeouts", document)

    async def faults(self, document: dict[str, Any]) -> dict[str, Any]:
        return await self._tell("faults", msgspec.to_builtins(convert_args(document, FaultArgs)))

    def _route(
        self, path: str, verb: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], drill: bool = False
    ) -> Route:
        async def handle(request: Request) -> Response:
            require_admin(request, self._token)
            if drill:
                require_drill(request, self._drill)
            return json_response(await verb(await read_object(request)))

        return Route(path, handle, methods=["POST"])

    def routes(self) -> list[Route]:
        return [
            self._route("/admin/abort", self.abort),
            self._route("/admin/drain", self.drain),
            self._route("/admin/resume", self.resume),
            self._route("/admin/relink", self.relink),
            self._route("/admin/timeouts", self.timeouts),
            self._route("/admin/faults", self.faults, drill=True),
        ]
