"""One bounded GET, with the ways it can fail told apart."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from pdctl.adapters.picture import Reach

DEADLINE = 2.0
BODY_MAX = 16 << 20  # bytes of one answer
SAID = 160  # characters of an error's own words


@dataclass(frozen=True)
class Answer:
    """`body` is the JSON document, a list as {"items": list}; None for plain text and unless reach is OK.

    `text` is the answer as it came, `seconds` what the probe cost.
    """

    reach: Reach
    body: dict[str, Any] | None
    detail: str
    seconds: float
    text: str = ""


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
    """GET `url` as a JSON object within `deadline` seconds; never raises for what the other side does."""
    return await fetch(client, url, deadline)


async def fetch(
    client: httpx.AsyncClient,
    url: str,
    deadline: float = DEADLINE,
    plain: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """As `get`; `plain` takes the answer as text, whatever it is."""
    begin, connected = time.monotonic(), False

    async def trace(event: str, info: object) -> None:
        nonlocal connected
        connected = connected or event == "http11.send_request_headers.started"

    try:
        # Every wait of the client is bounded by `deadline`, and a server that trickles by the outer bound.
        async with asyncio.timeout(deadline + 0.5):
            asked = client.build_request("GET", url, headers=dict(headers or {}), timeout=deadline)
            asked.extensions["trace"] = trace
            response = await client.send(asked)
    except httpx.HTTPError as error:
        reach, detail = classify(error)
        return Answer(reach, None, detail, time.monotonic() - begin)
    except TimeoutError:
        # On a busy machine the outer bound may be the first that fires, on a connect too.
        silent = (Reach.TIMED_OUT, "the answer did not end in time")
        reach, detail = silent if connected else classify(httpx.ConnectTimeout(""))
        return Answer(reach, None, detail, time.monotonic() - begin)
    seconds = time.monotonic() - begin
    if response.status_code != 200:
        return Answer(Reach.BAD_ANSWER, None, _status(response), seconds)
    if len(response.content) > BODY_MAX:
        return Answer(Reach.BAD_ANSWER, None, "the answer is too long", seconds)
    return read(response.text, plain, seconds)


def read(text: str, plain: bool, seconds: float) -> Answer:
    """The answer that `text`, received with status 200, is."""
    if plain:
        return Answer(Reach.OK, None, "", seconds, text)
    try:
        body = json.loads(text)
    except ValueError:
        return Answer(Reach.BAD_ANSWER, None, "the answer is not JSON", seconds)
    if isinstance(body, list):
        body = {"items": body}
    if not isinstance(body, dict):
        return Answer(Reach.BAD_ANSWER, None, "the answer is no JSON object", seconds)
    return Answer(Reach.OK, body, "", seconds, text)


def _status(response: httpx.Response) -> str:
    """An error's status, and its own words where they are short and plain."""
    plain = response.headers.get("content-type", "").startswith("text/plain")
    said = " ".join(response.text[:SAID].split()) if plain else ""
    return f"HTTP {response.status_code}" + (f": {said}" if said else "")
