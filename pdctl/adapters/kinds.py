"""Every kind of engine and router: what is asked of it, and its answers as one sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdctl.adapters import bundled, sglang, sglang_router, vllm
from pdctl.adapters.endpoints import UNASKED, Answers, Endpoint, Server
from pdctl.adapters.picture import Sample

NOTHING: Mapping[str, str] = {}


def endpoints(server: Server) -> tuple[Endpoint, ...]:
    """Of one server. KeyError for a kind that pdctl does not know."""
    return {
        "bundled": bundled.endpoints,
        "sglang": sglang.endpoints,
        "vllm": vllm.endpoints,
        "sglang-router": sglang_router.endpoints,
    }[server.kind](server)


def sample(
    server: Server,
    answers: Answers,
    now: float,
    settings: Mapping[str, str] = NOTHING,
    environ: Mapping[str, str] = NOTHING,
) -> Sample[Any]:
    """The sample that its answers make; `settings` are its launch flags, `environ` its variables."""
    if server.kind == "sglang":
        return sglang.sample(server, answers, environ, now)
    if server.kind == "vllm":
        return vllm.sample(server, answers, settings, environ, now)
    if server.kind == "sglang-router":
        return sglang_router.sample(server, answers, settings, environ, now)
    state = answers.get("state", UNASKED)
    if server.role == "router":
        return bundled.router_sample(state, answers.get("requests", UNASKED))
    return bundled.engine_sample(state)
