"""One bounded GET, with the ways it can fail told apart."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

from pdctl.adapters.picture import Reach

DEADLINE = 2.0


@dataclass(frozen=True)
class Answer:
    """`body` is the JSON document, None unless reach is OK. `seconds` is what the probe cost."""

    reach: Reach
    body: dict[str, Any] | None
    detail: str
    seconds: float


def _refused(error: BaseException) -> bool:
    """httpx wraps the socket's own error; only the chain tells a refusal from no route."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError) or "refused" in str(cause).lower():
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def classify(error: httpx.HTTPError) -> tuple[Reach, str]:
    """The reach and one sentence for a request that got no answer."""
    if isinstance(error, httpx.ConnectTimeout):
        return Reach.UNREACHABLE, "the connect itself got no reply"
    if isinstance(error, httpx.TimeoutException):
        return Reach.TIMED_OUT, "the port is open and nothing answered"
    if isinstance(error, httpx.ConnectError) and _refused(error):
        return Reach.REFUSED, "nothing listens on the port"
    if isinstance(error, httpx.ConnectError):
        return Reach.UNREACHABLE, str(error) or "no route to the address"
    return Reach.BAD_ANSWER, f"the connection broke: {error or type(error).__name__}"


async def get(client: httpx.AsyncClient, url: str, deadline: float = DEADLINE) -> Answer:
    """GET `url` as JSON within `deadline` seconds; never raises for what the other side does."""
    begin = time.monotonic()
    try:
        response = await client.get(url, timeout=deadline)
        body = response.json()
    except httpx.HTTPError as error:
        reach, detail = classify(error)
        return Answer(reach, None, detail, time.monotonic() - begin)
    except ValueError:
        return Answer(Reach.BAD_ANSWER, None, "the answer is not JSON", time.monotonic() - begin)
    seconds = time.monotonic() - begin
    if response.status_code != 200 or not isinstance(body, dict):
        return Answer(Reach.BAD_ANSWER, None, f"HTTP {response.status_code}", seconds)
    return Answer(Reach.OK, body, "", seconds)
