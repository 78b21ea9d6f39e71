"""A bounded load through the router: agents that talk several rounds, each with a growing conversation."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx

from pdctl.flows.context import Context

_TURNS = (
    "List three files of a small web project.",
    "Explain what the second one is for.",
    "Write one test for it.",
    "Say what could go wrong with it.",
)
_LONGEST = 1600  # characters of conversation before an agent begins anew
# Seconds an agent waits after its first failed request, doubled for each one that follows, and the most.
_BACKOFF = (0.2, 5.0)


@dataclass(frozen=True)
class Shot:
    """One request. `code` is "" when it succeeded, else the error's code or the HTTP failure."""

    agent: int
    round: int
    seconds: float
    code: str

    @property
    def ok(self) -> bool:
        return not self.code


@dataclass(frozen=True)
class Shape:
    """`agents` at once, each until `seconds` are over and no longer than `rounds`; tokens per answer."""

    agents: int
    seconds: float
    rounds: int = 1000
    tokens: int = 16
    deadline: float = 120.0


async def ask(
    client: httpx.AsyncClient, url: str, model: str, prompt: str, tokens: int, deadline: float
) -> tuple[str, str]:
    """(text, code) of one greedy completion; never raises for what the fleet does."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    try:
        response = await client.post(f"{url}/v1/completions", json=body, timeout=deadline)
        answer = response.json()
    except httpx.HTTPError as error:
        return "", type(error).__name__
    except ValueError:
        return "", "not_json"
    if response.status_code != 200:
        said = answer.get("error") if isinstance(answer, dict) else None
        code = said.get("code") if isinstance(said, dict) else None
        return "", str(code or f"http_{response.status_code}")
    return str((answer.get("choices") or [{}])[0].get("text") or ""), ""


async def _agent(
    client: httpx.AsyncClient, url: str, model: str, shape: Shape, number: int, end: float
) -> list[Shot]:
    shots: list[Shot] = []
    pause = _BACKOFF[0]
    talk = f"Agent {number} works on a task.\n"
    while time.monotonic() < end and len(shots) < shape.rounds:
        talk += f"User: {_TURNS[len(shots) % len(_TURNS)]}\nAgent:"
        begin = time.monotonic()
        text, code = await ask(client, url, model, talk, shape.tokens, shape.deadline)
        shots.append(Shot(number, len(shots), time.monotonic() - begin, code))
        talk = talk + text + "\n" if len(talk) < _LONGEST else f"Agent {number} begins anew.\n"
        if code:
            await asyncio.sleep(max(0.0, min(pause, end - time.monotonic())))
            pause = min(2 * pause, _BACKOFF[1])
        else:
            pause = _BACKOFF[0]
    return shots


async def drive(ctx: Context, shape: Shape) -> list[Shot]:
    """Run the whole load; returns when every request has ended or met its deadline."""
    end = time.monotonic() + shape.seconds
    url, model = ctx.fleet.router.url, ctx.fleet.model.name
    async with ctx.async_client(connections=shape.agents + 4) as client:
        runs = [_agent(client, url, model, shape, n, end) for n in range(shape.agents)]
        return [shot for shots in await asyncio.gather(*runs) for shot in shots]
