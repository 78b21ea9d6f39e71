"""GET /v1/models and /v1/models/{id}: the one model that is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.http.errors import ParamError, json_response


def model_routes(name: str, describe: Callable[[], dict[str, Any]]) -> list[Route]:
    """`describe` gives what is told of the model beside its name: OpenAI's `created`, and more."""

    def model() -> dict[str, Any]:
        return {"id": name, "object": "model", "owned_by": "pdctl", **describe()}

    async def models(_: Request) -> Response:
        return json_response({"object": "list", "data": [model()]})

    async def one(request: Request) -> Response:
        check_served(request.path_params["id"], name)
        return json_response(model())

    return [Route("/v1/models", models, methods=["GET"]), Route("/v1/models/{id:path}", one, methods=["GET"])]


def check_served(model: str, served: str) -> None:
    """ParamError, status 404, for a model that is not served here."""
    if model != served:
        message = f"The model {model!r} is not served here; this is {served!r}."
        raise ParamError("model", message, "model_not_found", status=404)
