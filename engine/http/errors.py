"""OpenAI error bodies: {"error": {"message", "type", "code", "param"}}, whole or as an SSE event."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from engine.core.errors import EngineError, RequestError

ERROR_MARK = b'data: {"error"'
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    499: "request_aborted",
    503: "overloaded_error",
    504: "timeout_error",
}


class ParamError(RequestError):
    """A field of the body has a wrong type or value. `param` is its dotted name."""

    def __init__(
        self,
        param: str | None,
        message: str,
        code: str = "invalid_request",
        hint: str = "",
        status: int = 400,
    ) -> None:
        super().__init__(code, message, status, hint)
        self.param = param


def error_document(error: EngineError) -> dict[str, Any]:
    """The `{"error": ...}` object of one failure."""
    status = error.status
    return {
        "error": {
            "message": f"{error.message} {error.hint}".strip(),
            "type": _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
            "code": error.code,
            "param": error.param if isinstance(error, ParamError) else None,
        }
    }


def json_response(document: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(document), status, headers, "application/json")


def error_response(error: EngineError, headers: dict[str, str] | None = None) -> Response:
    return json_response(error_document(error), error.status, headers)


def error_event(error: EngineError) -> bytes:
    """The SSE event for an error that comes after the headers; starts with ERROR_MARK."""
    return b"data: " + msgspec.json.encode(error_document(error)) + b"\n\n"


async def _on_engine_error(_request: Request, exc: Exception) -> Response:
    if not isinstance(exc, EngineError):
        raise exc
    return error_response(exc)


async def _on_http_exception(request: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "http_error")
    phrase = HTTPStatus(status).phrase
    return error_response(RequestError(code, f"{phrase}: {request.method} {request.url.path}.", status))


async def _on_crash(_request: Request, _exc: Exception) -> Response:
    # Starlette re-raises after this answer, so the traceback is in the server's log and not in the body.
    return error_response(RequestError("internal", "The server failed on this request.", 500))


HANDLERS: dict[Any, Any] = {
    EngineError: _on_engine_error,
    HTTPException: _on_http_exception,
    Exception: _on_crash,
}
