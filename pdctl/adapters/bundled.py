"""Bundled engines and router: what is asked of them, and their answers as a picture."""

from __future__ import annotations

from typing import Any

import httpx

from pdctl import contracts
from pdctl.adapters import parse
from pdctl.adapters.endpoints import Endpoint, Server
from pdctl.adapters.picture import Engine, Reach, Router, Sample
from pdctl.adapters.probe import DEADLINE, Answer, get
from pdctl.facts.missing import Missing

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


def endpoints(server: Server) -> tuple[Endpoint, ...]:
    state = Endpoint("state", f"{server.url}/v1/state")
    if server.role == "router":
        return state, Endpoint("requests", f"{server.url}/v1/requests")
    return state, Endpoint("metrics", f"{server.url}/metrics", plain=True, pictured=False)


def _broken(contract: str, body: dict[str, Any], error: Exception) -> str:
    found = contracts.faults(contract, body)
    return found[0] if found else f"{type(error).__name__}: {error}"


def engine_sample(answer: Answer) -> Sample[Engine]:
    """A sample from what GET /v1/state of an engine answered."""
    if answer.body is None:
        missing: Missing = Missing(f"{answer.reach}: {answer.detail}")
        return Sample(answer.reach, missing, answer.detail, answer.seconds)
    documents: dict[str, object] = {"/v1/state": answer.body}
    try:
        engine = parse.engine(answer.body)
    except _MALFORMED as error:
        detail = _broken("engine_state", answer.body, error)
        return Sample(Reach.BAD_ANSWER, Missing(detail), detail, answer.seconds, documents)
    return Sample(Reach.OK, engine, "", answer.seconds, documents)


def router_sample(state: Answer, requests: Answer) -> Sample[Router]:
    """A sample from what GET /v1/state and GET /v1/requests of the router answered."""
    seconds = max(state.seconds, requests.seconds)
    if state.body is None:
        return Sample(state.reach, Missing(f"{state.reach}: {state.detail}"), state.detail, seconds)
    documents: dict[str, object] = {"/v1/state": state.body, "/v1/requests": requests.body}
    try:
        router = parse.router(state.body, requests.body, f"{requests.reach}: {requests.detail}")
    except _MALFORMED as error:
        detail = _broken("router_state", state.body, error)
        if requests.body is not None and not contracts.faults("router_state", state.body):
            detail = _broken("router_requests", requests.body, error)
        return Sample(Reach.BAD_ANSWER, Missing(detail), detail, seconds, documents)
    return Sample(Reach.OK, router, "", seconds, documents)


async def ask_engine(client: httpx.AsyncClient, url: str, deadline: float = DEADLINE) -> Sample[Engine]:
    return engine_sample(await get(client, f"{url}/v1/state", deadline))
