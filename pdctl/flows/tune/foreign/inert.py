"""A request that only a prefill gets: no decode ever asks for its KV, so a watchdog has to end the wait."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from pdctl.errors import PdctlError
from pdctl.fleet.model import Engine
from pdctl.flows.context import Context
from pdctl.flows.foreign import authorization, completion
from pdctl.flows.http import call, error_of
from pdctl.remote.fanout import begin

_PROMPT = "This request is a drill: nobody will ask for its keys and values."
# vLLM's NIXL connector: keep the blocks for a decode that is to come.
_KEEP = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None}
_KEEP |= {"remote_block_ids": None, "remote_host": None, "remote_port": None}


@dataclass(frozen=True)
class Ended:
    """`status` is 0 for no HTTP answer, `said` the error's sentence; `seconds` since it was sent."""

    status: int
    said: str
    seconds: float


@dataclass(frozen=True)
class Inert:
    """`key` is what its engine knows it by: the room, or the request's id."""

    key: str
    answer: Future[Ended]


def send(ctx: Context, prefill: Engine, patience: float) -> Inert:
    """To `prefill` alone; its answer is waited for `patience` seconds."""
    body: dict[str, Any] = completion(ctx.fleet.model.name, _PROMPT, 1)
    key = f"drill-{secrets.token_hex(6)}"
    if prefill.kind == "sglang":
        room = secrets.randbits(62) or 1
        key = str(room)
        body |= {"bootstrap_host": prefill.address, "bootstrap_port": prefill.bootstrap_port}
        body |= {"bootstrap_room": room}
    else:
        body |= {"kv_transfer_params": _KEEP}
    headers = {"X-Request-ID": key, **authorization(ctx, [prefill])}
    return Inert(key, begin(partial(_ask, ctx, prefill, body, headers, patience)))


def _ask(
    ctx: Context, prefill: Engine, body: dict[str, Any], headers: dict[str, str], patience: float
) -> Ended:
    began = time.monotonic()
    try:
        status, answer = call(ctx, "POST", f"{prefill.url}/v1/completions", patience, body, headers)
    except PdctlError as error:
        return Ended(0, error.message, time.monotonic() - began)
    said = str(answer.get("message") or error_of(answer))
    return Ended(status, "" if status == 200 else said, time.monotonic() - began)
