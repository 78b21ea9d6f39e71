"""A prefill/decode proxy for vLLM's NixlConnector: one prefill call, then the decode call it answers for.

The prefill call asks for one token and `do_remote_decode`; the `kv_transfer_params` of its answer go into
the decode call, whose stream is passed on. This is the recipe of vLLM's own example proxy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import uuid
from collections.abc import AsyncIterator

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ASK_PREFILL = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


def build(prefill_url: str, decode_url: str) -> Starlette:
    """The proxy over one prefill and one decode server."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    prefill = httpx.AsyncClient(base_url=prefill_url, timeout=300, limits=limits)
    decode = httpx.AsyncClient(base_url=decode_url, timeout=300, limits=limits)

    async def completions(request: Request) -> Response:
        body = await request.json()
        headers = {"X-Request-Id": uuid.uuid4().hex}
        ask = {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": ASK_PREFILL}
        ask.pop("stream_options", None)
        answer = await prefill.post("/v1/completions", json=ask, headers=headers)
        if answer.status_code != 200:
            return Response(answer.content, answer.status_code, media_type="application/json")
        body["kv_transfer_params"] = answer.json()["kv_transfer_params"]
        sent = decode.build_request("POST", "/v1/completions", content=json.dumps(body), headers=headers)
        sent.headers["content-type"] = "application/json"
        reply = await decode.send(sent, stream=True)

        async def relay() -> AsyncIterator[bytes]:
            try:
                async for chunk in reply.aiter_raw():
                    yield chunk
            finally:
                await reply.aclose()

        return StreamingResponse(relay(), reply.status_code, media_type=reply.headers["content-type"])

    async def health(_: Request) -> Response:
        return JSONResponse({"ok": True})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await prefill.aclose()
        await decode.aclose()

    routes = [Route("/v1/completions", completions, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--prefill", required=True)
    parser.add_argument("--decode", required=True)
    args = parser.parse_args()
    uvicorn.run(build(args.prefill, args.decode), host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
