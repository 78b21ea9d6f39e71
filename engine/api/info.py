"""What an engine says of itself: health, readiness, state, and the public routers' probes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.api.client import GroupClient
from engine.api.compat import tokens_of
from engine.http.errors import json_response
from engine.http.models import model_routes


class Reports:
    def __init__(self, client: GroupClient) -> None:
        self._client = client

    async def health(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        state = self._client.state()
        document = {"ready": state["ready"], "reasons": state["not_ready"]}
        return json_response(document, 200 if state["ready"] else 503)

    async def state(self, _: Request) -> Response:
        return json_response(self._client.state())

    def _model(self) -> dict[str, Any]:
        info, state = self._client.info, self._client.state()
        told = {"root": info.model_path, "max_model_len": info.max_model_len}
        return {"created": int(state["started_at"]), **told}

    async def server_info(self, _: Request) -> Response:
        """SGLang's names; a wrong type in one of them makes the public router drop them all."""
        info, state = self._client.info, self._client.state()
        document = {
            "model_path": info.model_path,
            "served_model_name": info.served_model_name,
            "tp_size": int(state["fingerprint"].get("tp", 1)),
            "dp_size": 1,
            "context_length": info.max_model_len,
            "disaggregation_mode": "null" if info.role == "both" else info.role,
            "version": str(state["versions"].get("engine", "")),
            "internal_states": [],
        }
        return json_response(document)

    async def model_info(self, _: Request) -> Response:
        info = self._client.info
        document = {
            "model_path": info.model_path,
            "tokenizer_path": info.model_path,
            "served_model_name": info.served_model_name,
            "is_generation": True,
        }
        return json_response(document)

    async def load(self, _: Request) -> Response:
        """One entry, since there is one data-parallel rank; the public router sums num_tokens."""
        state = self._client.state()
        requests: list[dict[str, Any]] = state["requests"]
        document = {
            "dp_rank": 0,
            "num_reqs": len(requests),
            "num_waiting_reqs": state["queues"].get("waiting", {}).get("depth", 0),
            "num_tokens": tokens_of(state),
        }
        return json_response([document])

    def routes(self) -> list[Route]:
        paths = {
            "/health": self.health,
            "/ready": self.ready,
            "/v1/state": self.state,
            "/server_info": self.server_info,
            "/get_server_info": self.server_info,
            "/model_info": self.model_info,
            "/get_model_info": self.model_info,
            "/get_load": self.load,
        }
        models = model_routes(self._client.info.served_model_name, self._model)
        return [*models, *(Route(path, handler, methods=["GET"]) for path, handler in paths.items())]
