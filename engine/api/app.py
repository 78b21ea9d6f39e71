"""The app of one engine."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route

from engine.api.admin import Admin
from engine.api.client import GroupClient
from engine.api.compat import Compat
from engine.api.inference import Endpoint, Inference
from engine.api.info import Reports
from engine.api.metrics import registry_of
from engine.http.errors import HANDLERS
from engine.http.metrics import metrics_route
from engine.text.model import TextModel


def build_app(client: GroupClient, text: TextModel, token: str | None, drill: str | None) -> Starlette:
    """All routes of an engine. `token` None switches admin verbs off, `drill` None the faults."""
    inference = Inference(client, text)
    posts = {"/v1/completions": "completion", "/v1/chat/completions": "chat", "/generate": "generate"}
    routes = [
        *(Route(path, Endpoint(inference, kind), methods=["POST"]) for path, kind in posts.items()),
        *Reports(client).routes(),
        *Compat(client, token).routes(),
        *Admin(client, token, drill).routes(),
        metrics_route(registry_of(client.state)),
    ]
    return Starlette(routes=routes, exception_handlers=HANDLERS)
