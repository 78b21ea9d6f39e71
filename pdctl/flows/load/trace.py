"""Traces: requests with the moments they were sent at, one JSON object a line; replayed or recorded.

    {"at": 0.0, "agent": "a", "prompt": "Say hello.", "max_tokens": 16}
    {"at": 1.5, "prompt_tokens": 400, "max_tokens": 64}

`at` is seconds from the start. A prompt is a text, token ids, messages of a chat, or `prompt_tokens` for a
text of about that size. Requests of one `agent` follow one another, each at `at` or when the one before it
has ended; one without an agent waits for nobody. Other keys are ignored, so what is recorded can be replayed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from pdctl.errors import ConfigError
from pdctl.flows.load.plan import WORD, Agent, Prompt, Turn, words
from pdctl.flows.load.run import Sent

_MOST_LINES = 1_000_000
_MOST_TOKENS = 1 << 20
_KEYS = '"at", "max_tokens" and "prompt" or "prompt_tokens"'


def read(path: Path, seed: int) -> list[Agent]:
    """Its agents in order of arrival; ConfigError with file and line for what is no trace."""
    turns: dict[str, list[Turn]] = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if number > _MOST_LINES:
                raise ConfigError("load_trace", f"{path} has more than {_MOST_LINES} lines.", "Cut it.")
            if line.strip():
                agent, turn = _turn(line, f"{path}:{number}", random.Random(f"{seed}/line/{number}"))
                turns.setdefault(agent or f"line {number}", []).append(turn)
    if not turns:
        raise ConfigError("load_trace", f"{path} has no request in it.", f"A line is an object with {_KEYS}.")
    rows = sorted((sorted(mine, key=lambda turn: turn.at) for mine in turns.values()), key=lambda m: m[0].at)
    return [Agent(number, mine[0].at, tuple(mine)) for number, mine in enumerate(rows)]


def lasts(agents: Sequence[Agent]) -> float:
    """Seconds until the last request of a trace is due."""
    return max(turn.at for agent in agents for turn in agent.turns)


def _turn(line: str, where: str, rng: random.Random) -> tuple[str, Turn]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError("load_trace", f"{where}: it is no JSON: {error}.") from None
    if not isinstance(row, dict):
        raise ConfigError("load_trace", f"{where}: it is no object.", f"A line has {_KEYS}.")
    at = _number(row, "at", where, 0.0, 1e7)
    tokens = int(_number(row, "max_tokens", where, 1, _MOST_TOKENS))
    agent = row.get("agent")
    return "" if agent is None else str(agent), Turn(_prompt(row, where, rng), tokens, at=at, whole=True)


def _number(row: dict[str, Any], key: str, where: str, low: float, high: float) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        said = "is missing" if key not in row else f"is {value!r}"
        span = f"{low:.10g} to {high:.10g}"
        raise ConfigError("load_trace", f'{where}: "{key}" {said}; it is a number of {span}.')
    return float(value)


def _prompt(row: dict[str, Any], where: str, rng: random.Random) -> Prompt:
    prompt = row.get("prompt")
    if prompt is None:
        return words(rng, max(1, round(_number(row, "prompt_tokens", where, 1, _MOST_TOKENS) / WORD)))
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt:
        if all(type(one) is int and one >= 0 for one in prompt):
            return prompt
        if all(isinstance(one, dict) and {"role", "content"} <= one.keys() for one in prompt):
            return prompt
    raise ConfigError(
        "load_trace", f'{where}: "prompt" is neither a text nor a list of token ids or of messages.'
    )


class Recorder:
    """Writes what was sent, and how it ended, as a trace."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def __call__(self, sent: Sent) -> None:
        shot = sent.shot
        row: dict[str, Prompt | str | float | int | None] = {
            "at": round(shot.at, 4),
            "agent": str(shot.agent),
            "prompt": sent.prompt,
            "max_tokens": sent.tokens,
            "round": shot.round,
            "id": shot.id,
            "code": shot.code,
            "seconds": round(shot.seconds, 4),
            "ttft": shot.ttft,
            "tokens": shot.tokens,
        }
        self._out.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._out.flush()
