"""What an engine of another kind says of itself around a drill: numbers by normal name."""

from __future__ import annotations

import time

import httpx

from pdctl.adapters.readings.answers import from_answer
from pdctl.adapters.readings.scrape import readings
from pdctl.fleet.model import Engine
from pdctl.flows.context import Context
from pdctl.flows.foreign import authorization

DEADLINE = 5.0


def numbers(ctx: Context, engine: Engine) -> dict[str, float]:
    """By normal name (adapters/readings/names.py), of the engine as a whole; {} where it shows none."""
    found: dict[str, float] = {}
    for reading in readings(_text(ctx, engine, "/metrics"), time.time()):
        found |= {} if reading.rank else reading.numbers
    if engine.kind == "sglang":
        for reading in from_answer("v1_loads", _json(ctx, engine, "/v1/loads?include=all"), time.time()):
            found |= reading.numbers
    return found


def _text(ctx: Context, engine: Engine, path: str) -> str:
    try:
        with ctx.client(DEADLINE) as client:
            answer = client.get(f"{engine.url}{path}", headers=authorization(ctx, [engine]))
    except httpx.HTTPError:
        return ""
    return answer.text if answer.status_code == 200 else ""


def _json(ctx: Context, engine: Engine, path: str) -> dict[str, object]:
    try:
        with ctx.client(DEADLINE) as client:
            found = client.get(f"{engine.url}{path}", headers=authorization(ctx, [engine])).json()
    except (httpx.HTTPError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
