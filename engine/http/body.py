"""Reading a JSON body: bounded in size and time, decoded strictly, errors that name the field."""

from __future__ import annotations

import asyncio
import difflib
import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from engine.core.errors import RequestError
from engine.http.errors import ParamError

MAX_BODY = 8 << 20
BODY_DEADLINE = 30.0
_PATH = re.compile(r" - at `\$\.?(.*)`$")
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


async def read_body(request: Request) -> bytes:
    """The whole body; RequestError 413 past MAX_BODY bytes, 408 past BODY_DEADLINE seconds."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_DEADLINE):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise RequestError("body_too_large", f"The body is larger than {MAX_BODY} bytes.", 413)
                parts.append(part)
    except TimeoutError:
        raise RequestError("body_timeout", f"The body took over {BODY_DEADLINE:g} s.", 408) from None
    except ClientDisconnect:
        raise RequestError("aborted", "The client left while it sent the body.", 499) from None
    return b"".join(parts)


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object (an empty body is an empty object); RequestError 400 otherwise."""
    raw = await read_body(request)
    if not raw.strip():
        return {}
    try:
        document = msgspec.json.decode(raw)
    except msgspec.DecodeError as e:
        raise RequestError("invalid_json", f"The body is not JSON: {e}.") from None
    except RecursionError:
        raise RequestError("invalid_json", "The body is nested too deeply.") from None
    if not isinstance(document, dict):
        raise RequestError("invalid_json", "The body must be a JSON object.")
    return document


def convert(document: object, kind: type[T]) -> T:
    """`document` as a struct of `kind`; ParamError naming the field that does not fit."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as e:
        text = str(e)
        found = _PATH.search(text)
        param = found[1] if found else ""
        missing = re.search(r"missing required field `(\w+)`", text)
        if missing:
            param = f"{param}.{missing[1]}".lstrip(".")
        raise ParamError(param, f"{_PATH.sub('', text)} ({param or 'body'}).") from None


def convert_args(document: dict[str, Any], kind: type[S]) -> S:
    """As `convert`, and no key may be left over: a misspelt argument of a verb would act as its default."""
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in document:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            known = f"Known: {', '.join(names)}." if names else "This verb takes none."
            hint = f"Did you mean {near[0]}?" if near else known
            raise ParamError(key, f"{key} is not an argument of this verb.", hint=hint)
    return convert(document, kind)
