"""What an endpoint says of itself before it is loaded: its model, and how long a prompt may be."""

from __future__ import annotations

from typing import Any

import httpx

from pdctl.errors import ConfigError, UnreachableError
from pdctl.fleet.names import nearest
from pdctl.flows.load.client import Target
from pdctl.flows.load.run import Way

_PATIENCE = 10.0


async def known(target: Target, way: Way) -> tuple[Target, int | None]:
    """With its model named, and the tokens that a request may have, None where nobody says so.

    UnreachableError when it does not answer, ConfigError when it has no such model.
    """
    async with way(4) as client:
        rows = await _models(client, target.url, target.headers)
        names = [str(row.get("id")) for row in rows]
        name = target.model or (names[0] if names else "")
        if not name:
            raise ConfigError("load_model", f"{target.url}/v1/models names no model.", "Say --model NAME.")
        if names and name not in names:
            raise ConfigError(
                "load_model",
                f"{target.url} has no model {name!r}.",
                nearest(name, names) or f"It has {names}.",
            )
        lengths = [row.get("max_model_len") for row in rows if row.get("id") == name]
        if not any(lengths):
            lengths = await _behind(client, target)
        return Target(target.url, name, target.headers), min((int(n) for n in lengths if n), default=None)


async def _models(client: httpx.AsyncClient, url: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    where = f"{url}/v1/models"
    try:
        answer = await client.get(where, headers=headers, timeout=_PATIENCE)
        document = answer.json() if answer.status_code == 200 else None
    except httpx.HTTPError as error:
        said = str(error) or type(error).__name__
        hint = "Is it up, and this its address? `pdctl diagnose` says what is wrong with a fleet."
        raise UnreachableError("unreachable", f"{where} cannot be reached: {said}.", hint) from None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnreachableError(
            "no_models",
            f"{where} answered {answer.status_code} and no list of models.",
            "Is it OpenAI's API?",
        )
    return [row for row in document.get("data") or [] if isinstance(row, dict)]


async def _behind(client: httpx.AsyncClient, target: Target) -> list[Any]:
    """The bundled router knows engines, and they know their length."""
    try:
        answer = await client.get(f"{target.url}/v1/state", timeout=_PATIENCE)
        engines = answer.json().get("engines") or [] if answer.status_code == 200 else []
        urls = [engine["url"] for engine in engines if engine.get("ready")]
        rows = [row for url in urls for row in await _models(client, url, {})]
    except (httpx.HTTPError, UnreachableError, ValueError, AttributeError, KeyError, TypeError):
        return []
    return [row.get("max_model_len") for row in rows]
