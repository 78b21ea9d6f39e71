"""The co-restart's canary: the same greedy request twice over one edge, small and large, texts compared.

It goes to the engines themselves, both legs at once and one room, as the router sends it, so it passes
while the router holds admissions.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from pdctl.errors import PdctlError
from pdctl.fleet.model import Engine
from pdctl.flows.context import Context
from pdctl.flows.foreign import authorization, is_foreign
from pdctl.flows.http import call, error_of
from pdctl.remote.fanout import begin

SMALL = "The capital of France is"
# About 250 tokens: many pages, and more than one chunk on small token budgets.
LARGE = " ".join(f"Line {n}: the quick brown fox jumps over the lazy dog." for n in range(1, 21))
TOKENS = 12


@dataclass(frozen=True)
class Canary:
    """One pass over one edge. `problem` is "" when the body was right; `seconds` from send to answer."""

    prefill: str
    decode: str
    size: str
    text: str
    seconds: float
    problem: str


def _leg(
    ctx: Context, engine: Engine, body: dict[str, Any], id: str, timeout: float
) -> tuple[dict[str, Any], str]:
    """(body, problem) of one leg."""
    try:
        headers = {"X-Request-ID": id, **authorization(ctx, [engine])}
        status, answer = call(ctx, "POST", f"{engine.url}/v1/completions", timeout, body, headers)
    except PdctlError as error:
        return {}, error.message
    return answer, "" if status == 200 else f"{engine.name} answered {status}: {error_of(answer)}"


def once(
    ctx: Context, prefill: Engine, decode: Engine, prompt: str, timeout: float, tokens: int = TOKENS
) -> tuple[str, str]:
    """(text, problem) of one greedy request over the edge."""
    id = f"canary-{secrets.token_hex(6)}"
    body = {
        "model": ctx.fleet.model.name,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "bootstrap_host": prefill.address,
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": secrets.randbits(62) or 1,
    }
    first = begin(partial(_leg, ctx, prefill, body, id, timeout))
    (answer, wrong) = begin(partial(_leg, ctx, decode, body, id, timeout)).result()
    (_, other) = first.result()
    problem = wrong or other
    if problem:
        return "", problem
    choices = answer.get("choices") or [{}]
    text = str(choices[0].get("text") or "")
    return text, "" if text.strip() else "the answer is empty"


def send(ctx: Context, prefill: Engine, decode: Engine, size: str, timeout: float = 30.0) -> Canary:
    """Two passes of one size; both must answer alike and say something.

    An engine of another kind gets one: that it answers alike twice is no promise of its.
    """
    prompt = SMALL if size == "small" else LARGE
    started = time.monotonic()
    text, problem = once(ctx, prefill, decode, prompt, timeout)
    if not problem and not is_foreign(decode):
        again, problem = once(ctx, prefill, decode, prompt, timeout)
        if not problem and again != text:
            problem = f"the same greedy request gave {text!r}, then {again!r}"
    return Canary(prefill.name, decode.name, size, text, time.monotonic() - started, problem)
