"""Real requests with their bodies checked: health 200 is no evidence that KV moves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.flows.context import Context
from pdctl.flows.edge_canary import send
from pdctl.flows.foreign import authorization, completion, is_foreign
from pdctl.flows.http import call, error_of

PROMPT = "What is gravity? Answer in one short sentence."
# Without a chat template: an instruct model may hold a finished sentence for the end of its text.
OPENING = "The capital of France is"
TOKENS = 8


def router_canary(ctx: Context, deadline: float) -> float:
    """One request through the router; seconds. PdctlError when its body is not an answer."""
    router = ctx.fleet.router
    if is_foreign(router):
        return _plain(ctx, router, "the canary through the router", deadline)
    begin = time.monotonic()
    url = f"{router.url}/v1/chat/completions"
    status, body = call(ctx, "POST", url, deadline, _chat(ctx.fleet))
    check_answer("the canary through the router", status, body)
    return time.monotonic() - begin


def engine_canary(ctx: Context, engine: Engine, deadline: float) -> float:
    """One request to an engine that does both halves itself; seconds."""
    return _plain(ctx, engine, f"the canary to {engine.name}", deadline)


def _plain(ctx: Context, unit: Engine | Router, what: str, deadline: float) -> float:
    begin = time.monotonic()
    headers = authorization(ctx, [unit, *ctx.fleet.engines()])
    body = completion(ctx.fleet.model.name, OPENING, TOKENS)
    status, answer = call(ctx, "POST", f"{unit.url}/v1/completions", deadline, body, headers)
    if status != 200:
        raise _failed(f"{what} answered {status}: {error_of(answer)}")
    choices = answer.get("choices") or [{}]
    if not str(choices[0].get("text") or "").strip():
        raise _failed(f"{what} answered 200 with no text.")
    return time.monotonic() - begin


def edge_canary(ctx: Context, prefill: Engine, decode: Engine, deadline: float) -> float:
    """The same greedy request twice over one edge, past the router; seconds."""
    canary = send(ctx, prefill, decode, "small", deadline)
    if canary.problem:
        raise _failed(f"the canary over {prefill.name} -> {decode.name}: {canary.problem}.")
    return canary.seconds


def _chat(fleet: Fleet) -> dict[str, Any]:
    return {
        "model": fleet.model.name,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": False,
    }


def check_answer(what: str, status: int, body: Mapping[str, Any]) -> None:
    """A finished choice with text, and a usage that counts what was generated."""
    if status != 200:
        raise _failed(f"{what} answered {status}: {error_of(body)}")
    try:
        choice = body["choices"][0]
        text, finish = choice["message"]["content"], choice["finish_reason"]
        generated = body["usage"]["completion_tokens"]
    except (KeyError, IndexError, TypeError):
        raise _failed(f"{what} answered 200 with a body that is no chat completion.") from None
    if not isinstance(text, str) or not text.strip():
        raise _failed(f"{what} answered 200 with no text.")
    if finish not in ("stop", "length") or not 1 <= generated <= TOKENS:
        raise _failed(f"{what} ended as {finish!r} after {generated} tokens.")


def _failed(message: str) -> PdctlError:
    hint = "Run `pdctl diagnose` for the cause."
    return PdctlError("canary_failed", message[0].upper() + message[1:], hint, exit=Exit.FINDINGS)
