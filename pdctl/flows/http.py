"""HTTP to engines and router, each call with a deadline and an error that says what did not answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from pdctl.errors import DeadlineError, PdctlError, UnreachableError
from pdctl.flows.context import Context

_WHY = "Run `pdctl diagnose` for the cause."


def call(
    ctx: Context,
    method: str,
    url: str,
    deadline: float,
    body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Status and JSON body; `deadline` seconds bound every single wait of the call.

    UnreachableError when nothing answers, DeadlineError when the answer is late, PdctlError when it is
    not JSON.
    """
    try:
        with ctx.client(deadline) as client:
            answer = client.request(method, url, json=body, headers=headers)
    except httpx.TimeoutException:
        raise DeadlineError("no_answer", f"{url} did not answer in {deadline:g} s.", _WHY) from None
    except httpx.HTTPError as error:
        raise UnreachableError("unreachable", f"{url} cannot be reached: {error}.", _WHY) from None
    try:
        document = answer.json()
    except ValueError:
        raise PdctlError("bad_answer", f"{url} answered {answer.status_code} and no JSON.") from None
    if not isinstance(document, dict):
        raise PdctlError("bad_answer", f"{url} answered JSON that is not an object.")
    return answer.status_code, document


def error_of(document: Mapping[str, Any]) -> str:
    """The sentence of an OpenAI error body."""
    error = document.get("error")
    if isinstance(error, dict):
        return f"{error.get('code')}: {error.get('message')}"
    return "no error body."
