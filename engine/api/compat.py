"""Verbs of SGLang's HTTP surface that public routers and operators' scripts use, on what this engine has."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.api.client import GroupClient
from engine.http.auth import require_admin
from engine.http.body import convert_args, read_object
from engine.http.errors import json_response

# A leader that published within this time turns (seconds); healthy is under half a second.
_FRESH = 5.0


class AbortBody(msgspec.Struct):
    rid: str = ""
    abort_all: bool = False


class Compat:
    def __init__(self, client: GroupClient, token: str | None) -> None:
        self._client = client
        self._token = token

    async def health_generate(self, _: Request) -> Response:
        """200 when requests are taken and the leader turns. No token is computed: alone, no leg could."""
        state = self._client.state()
        age = state["snapshot_age_s"]
        turns = age is not None and age < _FRESH
        return json_response(
            {"status": "ok" if turns else "silent"}, 200 if state["ready"] and turns else 503
        )

    async def loads(self, _: Request) -> Response:
        """GET /v1/loads: one rank, SGLang's names, and the sum that routers look for."""
        state = self._client.state()
        pages, queues = state["pages"], state["queues"]
        depth = {name: queue["depth"] for name, queue in queues.items()}
        total, size = pages["total"], pages["page_size"]
        used = (total - pages["free"]) * size
        row = {
            "timestamp": time.time() - (state["snapshot_age_s"] or 0.0),
            "dp_rank": 0,
            "num_running_reqs": depth.get("running", 0) + depth.get("prefilling", 0),
            "num_waiting_reqs": depth.get("waiting", 0),
            "num_used_tokens": used,
            "num_total_tokens": used,
            "max_total_num_tokens": total * size,
            "token_usage": used / (total * size) if total else 0.0,
            "disaggregation": {
                "mode": "null" if self._client.info.role == "both" else self._client.info.role,
                "prefill_inflight_queue_reqs": depth.get("inflight", 0),
                "decode_prealloc_queue_reqs": depth.get("preallocated", 0),
                "decode_transfer_queue_reqs": depth.get("transferring", 0),
            },
        }
        sums = {"total_tokens": tokens_of(state), "total_reqs": len(state["requests"])}
        return json_response({"timestamp": time.time(), "loads": [row], "aggregate": sums})

    async def flush_cache(self, _: Request) -> Response:
        """Forget the prefixes of earlier prompts; 200 only when nothing is held, as SGLang has it."""
        state = self._client.state()
        held = len(state["requests"])
        if held or state["pages"]["held"]:
            said = f"Not idle: {held} requests hold {state['pages']['held']} pages."
            return json_response({"success": False, "message": said}, 400)
        there = state["pages"]["total"] > 0  # none is before the model is up
        pages = (await self._client.admin("flush", {})).get("pages", 0) if there else 0
        return json_response({"success": True, "message": f"{pages} pages were flushed."})

    async def abort_request(self, request: Request) -> Response:
        """POST {rid} or {abort_all}, with the fleet token as the other admin verbs; rid is exact here."""
        require_admin(request, self._token)
        body = convert_args(await read_object(request), AbortBody)
        ids = [r["id"] for r in self._client.state()["requests"]] if body.abort_all else [body.rid]
        aborted = [id for id in ids if id and await self._client.abort(id, "admin")]
        return json_response({"aborted": len(aborted)})

    def routes(self) -> list[Route]:
        return [
            Route("/health_generate", self.health_generate, methods=["GET"]),
            Route("/v1/loads", self.loads, methods=["GET"]),
            Route("/flush_cache", self.flush_cache, methods=["GET", "POST"]),
            Route("/abort_request", self.abort_request, methods=["POST"]),
        ]


def tokens_of(state: dict[str, Any]) -> int:
    """Tokens of all requests that the engine holds."""
    return sum(r["prompt_tokens"] + r["output_tokens"] for r in state["requests"])
