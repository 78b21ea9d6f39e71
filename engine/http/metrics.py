"""The exposition of a Prometheus registry as a route."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def metrics_route(registry: CollectorRegistry) -> Route:
    """GET /metrics in the format the scraper asks for."""

    async def handle(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return Route("/metrics", handle, methods=["GET"])
