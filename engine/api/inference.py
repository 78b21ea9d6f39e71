"""POST /v1/completions, /v1/chat/completions and /generate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from engine.api.answer import send_stream, send_whole
from engine.api.called import CalledFormat
from engine.api.client import GroupClient
from engine.api.formats import ChatFormat, CompletionFormat, Format, GenerateFormat, Head
from engine.api.logprobs import LogprobView
from engine.api.prepare import Call, Preparer
from engine.api.run import Run
from engine.api.samples import samples_of
from engine.api.schema import TAKEN, ChatBody, CompletionBody, GenerateBody, refuse_unsupported
from engine.core.errors import EngineError, RequestError
from engine.http.body import convert, read_object
from engine.http.errors import error_response
from engine.http.gone import Stalled, until_gone
from engine.http.ids import HEADER, request_id
from engine.text.model import TextModel


class Inference:
    """What the three routes share: the engine, its text model, and the ids that are live."""

    def __init__(self, client: GroupClient, text: TextModel) -> None:
        self.client = client
        self.text = text
        self.prepare = Preparer(client, text)
        self.live: set[str] = set()

    async def call(self, kind: str, id: str, document: dict[str, Any]) -> Call:
        """The validated call of a body; RequestError naming what is wrong with it."""
        refuse_unsupported(document, taken=TAKEN.get(kind, ()))
        if kind == "completion":
            return await self.prepare.completion(id, convert(document, CompletionBody))
        if kind == "chat":
            return await self.prepare.chat(id, convert(document, ChatBody))
        params = document.get("sampling_params")
        if isinstance(params, dict):
            refuse_unsupported(params, "sampling_params.", TAKEN["sampling_params"])
        return await self.prepare.generate(id, convert(document, GenerateBody))


log = logging.getLogger(__name__)


def _format(kind: str, head: Head) -> Format:
    return CalledFormat(head) if head.calls else _FORMATS[kind](head)


_FORMATS: dict[str, Callable[[Head], Format]] = {
    "completion": CompletionFormat,
    "chat": ChatFormat,
    "generate": GenerateFormat,
}


class Endpoint:
    """One inference route as an ASGI app. `kind` is completion, chat or generate."""

    def __init__(self, inference: Inference, kind: str) -> None:
        self._inference = inference
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        document = await read_object(request)
        rid = document.get("rid") if self._kind == "generate" else None
        live = self._inference.live
        id = request_id(request, live, rid if isinstance(rid, str) else None)
        live.add(id)
        try:
            await until_gone(receive, self._answer(id, document, scope, receive, send))
        except EngineError as e:
            await error_response(e, {HEADER: id})(scope, receive, send)
        except Stalled as e:
            log.warning("%s: %s; its connection is closed", id, e)
        finally:
            live.discard(id)

    def _head(self, id: str, call: Call, text: str) -> Head:
        model, asked = self._inference.client.info.served_model_name, call.resumable
        id, created = (id, int(time.time())) if asked is None else (asked.id, asked.created)
        wanted = call.request.sampling.logprobs is not None
        view = LogprobView(self._inference.text.show, call.earlier) if wanted else None
        return Head(
            id, model, created, len(call.prompt), call.include_usage, text, call.earlier, view, call.calls
        )

    async def _answer(
        self, id: str, document: dict[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        served = self._inference
        if served.client.info.max_model_len < 1:
            raise RequestError("draining", "The engine is still starting.", 503)
        call = await served.call(self._kind, id, document)
        info = served.client.info
        runs = [Run(served.client, served.text, call, each) for each in samples_of(call.request, call.n)]
        # A prefill's answer is its receipt for the handover: always one document, at its end.
        if call.stream and info.role != "prefill":
            text = await asyncio.to_thread(runs[0].replay) if call.earlier else ""
            form = _format(self._kind, self._head(id, call, text))
            await send_stream(runs, form, {HEADER: id}, send, marked=call.resumable is not None)
        else:
            form = _format(self._kind, self._head(id, call, ""))
            await send_whole(runs, form, {HEADER: id}, scope, receive, send)
