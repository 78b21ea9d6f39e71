"""Engines and routers of other kinds, as far as pdctl knows them: whether they say that they are healthy."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx

from pdctl.adapters.picture import Pair, Reach, Sample
from pdctl.adapters.probe import classify
from pdctl.facts.missing import Missing

# What answers 200 when requests are taken; a router is ready when it has a pair.
HEALTH = {"sglang": "/health", "vllm": "/health", "sglang-router": "/readiness"}
# SGLang computes a token for its answer: a second when idle, up to twenty under load.
PATIENCE = 21.0


async def ask_health(client: httpx.AsyncClient, url: str, kind: str, deadline: float) -> Sample[Any]:
    """A sample without a picture. `deadline` seconds, and not less than such an answer takes."""
    begin = time.monotonic()
    path = HEALTH[kind]
    missing = Missing(f"kind {kind}: pdctl knows no more of it than {path}")
    try:
        answer = await client.get(f"{url}{path}", timeout=max(deadline, 5.0))
    except httpx.HTTPError as error:
        reach, detail = classify(error)
        return Sample(reach, missing, detail, time.monotonic() - begin)
    seconds = time.monotonic() - begin
    if answer.status_code == 200:
        return Sample(Reach.OK, missing, "", seconds)
    return Sample(Reach.BAD_ANSWER, missing, f"{path} answers {answer.status_code}", seconds)


async def health_pair(client: httpx.AsyncClient, url: str, kind: str, gap: float) -> Pair[Any]:
    """Two samples `gap` seconds apart; a first one that got no answer is not paid for twice."""
    first = await ask_health(client, url, kind, gap)
    if first.reach in (Reach.TIMED_OUT, Reach.UNREACHABLE):
        return Pair(first, first, 0.0)
    await asyncio.sleep(gap)
    return Pair(first, await ask_health(client, url, kind, gap), gap)


def no_router() -> Sample[Any]:
    return Sample(Reach.OK, Missing("the fleet file names no router"))
