"""The id of a request: X-Request-ID or a new one, unique among the live ones."""

from __future__ import annotations

import re
import secrets
from collections.abc import Container

from starlette.requests import Request

from engine.core.ids import new_request_id
from engine.http.errors import ParamError

HEADER = "X-Request-ID"
_VALID = re.compile(r"[!-~]{1,128}")


def request_id(request: Request, live: Container[str], fallback: str | None = None) -> str:
    """The id this request goes by; ParamError when the given one is not 1..128 printable ASCII.

    Clients and gateways reuse ids for retries and traces, so one that is live already gets a suffix
    instead of a refusal: two requests never share an id here, and the answer's header tells which.
    """
    given = request.headers.get(HEADER) or fallback
    if given is None:
        return new_request_id()
    if not _VALID.fullmatch(given):
        raise ParamError(HEADER, f"{HEADER} must be 1..128 printable ASCII characters without spaces.")
    unique = given
    while unique in live:
        unique = f"{given}.{secrets.token_hex(3)}"
    return unique
