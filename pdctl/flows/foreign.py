"""Engines and routers that are not the bundled ones: started, asked for their health, and sent requests.

No admin verb and no state document of pdctl's own is asked of them; what that leaves unknown is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import httpx

from pdctl.adapters.foreign import HEALTH, PATIENCE
from pdctl.fleet.model import Cell, Engine, Router
from pdctl.fleet.profile import unit_secrets
from pdctl.fleet.secretfile import REFERENCE, filled
from pdctl.flows.context import Context

# A model of hundreds of gigabytes from a cold disk.
START = 3600.0
# Removed from the environment once they stand in the command line.
_ARGUMENT = "ARG_"


def is_foreign(unit: Engine | Router) -> bool:
    return unit.kind != "bundled"


def mixed(cell: Cell) -> bool:
    """Whether any engine of the cell is another kind's."""
    return any(map(is_foreign, cell.engines))


def unhealthy(ctx: Context, unit: Engine | Router, deadline: float = PATIENCE) -> str:
    """Why it takes no requests, "" when its own health says that it does."""
    path = HEALTH[unit.kind]
    try:
        with ctx.client(deadline) as client:
            status = client.get(f"{unit.url}{path}").status_code
    except httpx.TimeoutException:
        return f"{path} did not answer in {deadline:g} s"
    except httpx.HTTPError:
        return "it does not answer yet"
    return "" if status == 200 else f"{path} answers {status}"


def knows_edges(prefill: Engine, decode: Engine) -> bool:
    """Whether pdctl can send a request over this edge itself: SGLang's rooms are the bundled engine's too."""
    return {prefill.kind, decode.kind} <= {"bundled", "sglang"} and prefill.kind == decode.kind


def authorization(ctx: Context, units: Sequence[Engine | Router]) -> dict[str, str]:
    """The header for the first of `units` that was started with --api-key."""
    for unit in filter(is_foreign, units):
        values = {name: text for name, (text, _) in unit_secrets(ctx.fleet, unit).items()}
        words = filled(unit.spec.command or [], values)
        for word, following in zip(words, [*words[1:], ""], strict=True):
            option, equals, value = word.partition("=")
            if option == "--api-key":
                return {"Authorization": f"Bearer {value if equals else following}"}
    return {}


def launch(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a unit for `command`: the same process, by way of a wrapper where one is needed.

    Secrets are filled in on the host, from the env file, so that no unit file and no plan holds them. A
    program without an absolute path is looked up in the PATH of the unit's environment, as a shell does.
    """
    if not any(REFERENCE.search(word) for word in command):
        return tuple(command) if command[0].startswith("/") else ("/usr/bin/env", *command)
    names = list(dict.fromkeys(name for word in command for name in REFERENCE.findall(word)))
    given: list[str] = []
    shown = [_word(word, names, given) for word in command]
    lines = [f"s{at}=${name}" for at, name in enumerate(names)]
    lines += [f"unset {name}" for name in names if name.startswith(_ARGUMENT)]
    script = "; ".join([*lines, f"exec {' '.join(shown)}"])
    return ("/bin/sh", "-c", script, "sh", *given)


def _word(word: str, names: list[str], given: list[str]) -> str:
    """One word as the shell has to write it; its plain pieces are added to `given`."""
    pieces = []
    for at, piece in enumerate(re.split(REFERENCE, word)):
        if at % 2:
            pieces.append(f"${{s{names.index(piece)}}}")
        elif piece or not word:
            given.append(piece)
            pieces.append(f"${{{len(given)}}}")
    return f'"{"".join(pieces)}"'


def completion(model: str, prompt: str, tokens: int) -> dict[str, Any]:
    """An OpenAI completion that any engine answers; a chat may put all its tokens into reasoning."""
    return {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": False}
