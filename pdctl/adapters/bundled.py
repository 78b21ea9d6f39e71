"""Bundled engines and router: ask, twice, within a deadline each, and fill the picture."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from pdctl import contracts
from pdctl.adapters import parse
from pdctl.adapters.picture import Engine, Pair, Reach, Router, Sample
from pdctl.adapters.probe import DEADLINE, Answer, get
from pdctl.facts.missing import Missing

# Two samples this far apart let a rule see steps, tokens and bytes move.
GAP = 1.0
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


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


async def ask_router(client: httpx.AsyncClient, url: str, deadline: float = DEADLINE) -> Sample[Router]:
    state, requests = await asyncio.gather(
        get(client, f"{url}/v1/state", deadline), get(client, f"{url}/v1/requests", deadline)
    )
    return router_sample(state, requests)


async def engine_pair(client: httpx.AsyncClient, url: str, gap: float = GAP) -> Pair[Engine]:
    """Two samples `gap` seconds apart; a first sample that got no answer is not paid for twice."""
    first = await ask_engine(client, url)
    if first.reach in (Reach.TIMED_OUT, Reach.UNREACHABLE):
        return Pair(first, first, 0.0)
    await asyncio.sleep(gap)
    return Pair(first, await ask_engine(client, url), gap)


async def router_pair(client: httpx.AsyncClient, url: str, gap: float = GAP) -> Pair[Router]:
    """As engine_pair, for the router."""
    first = await ask_router(client, url)
    if first.reach in (Reach.TIMED_OUT, Reach.UNREACHABLE):
        return Pair(first, first, 0.0)
    await asyncio.sleep(gap)
    return Pair(first, await ask_router(client, url), gap)
