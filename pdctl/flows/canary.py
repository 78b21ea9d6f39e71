"""Real requests with their bodies checked: health 200 is no evidence that KV moves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context
from pdctl.flows.edge_canary import send
from pdctl.flows.foreign import authorization, completion, is_foreign
from pdctl.flows.http import call, error_of

# Plain text, for a model may have no chat template; begun, for an instruct model may hold a finished sentence
# for the end of its text.
OPENING = "The capital of France is"
TOKENS = 8


def router_canary(ctx: Context, deadline: float) -> float:
    """One request through the router; seconds. PdctlError when its body is not an answer."""
    return _plain(ctx, ctx.fleet.router, "the canary through the router", deadline)


def engine_canary(ctx: Context, engine: Engine, deadline: float) -> float:
    """One request to an engine that does both halves itself; seconds."""
    return _plain(ctx, engine, f"the canary to {engine.name}", deadline)


def _plain(ctx: Context, unit: Engine | Router, what: str, deadline: float) -> float:
    begin = time.monotonic()
    headers = authorization(ctx, [unit, *ctx.fleet.engines()])
    body = completion(ctx.fleet.model.name, OPENING, TOKENS)
    status, answer = call(ctx, "POST", f"{unit.url}/v1/completions", deadline, body, headers)
    _check(what, status, answer, counted=not is_foreign(unit))
    return time.monotonic() - begin


def edge_canary(ctx: Context, prefill: Engine, decode: Engine, deadline: float) -> float:
    """The same greedy request twice over one edge, past the router; seconds."""
    canary = send(ctx, prefill, decode, "small", deadline)
    if canary.problem:
        raise _failed(f"the canary over {prefill.name} -> {decode.name}: {canary.problem}.")
    return canary.seconds


def _check(what: str, status: int, body: Mapping[str, Any], counted: bool) -> None:
    """A choice with text and, where the server is ours, an end and a usage that count what was generated."""
    if status != 200:
        raise _failed(f"{what} answered {status}: {error_of(body)}")
    choice = (body.get("choices") or [{}])[0]
    if not str(choice.get("text") or "").strip():
        raise _failed(f"{what} answered 200 with no text.")
    finish, generated = choice.get("finish_reason"), (body.get("usage") or {}).get("completion_tokens", 0)
    if counted and (finish not in ("stop", "length") or not 1 <= generated <= TOKENS):
        raise _failed(f"{what} ended as {finish!r} after {generated} tokens.")


def _failed(message: str) -> PdctlError:
    hint = "Run `pdctl diagnose` for the cause."
    return PdctlError("canary_failed", message[0].upper() + message[1:], hint, exit=Exit.FINDINGS)
