"""One request of a load, to any endpoint with OpenAI's routes, until it ends or is given up."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from pdctl.flows.load.plan import Prompt

HEADER = "X-Request-ID"
# An engine that is overloaded accepts late; one that is gone does not at all.
CONNECT = 10.0


@dataclass(frozen=True)
class Target:
    """`url` has no path: routes are below its /v1. `headers` go with every request."""

    url: str
    model: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """`id` is what it is known by everywhere; after `abort` pieces of a stream it is given up.

    Messages are asked as a chat, a text or token ids as a completion.
    """

    id: str
    prompt: Prompt
    tokens: int
    stream: bool = True
    abort: int | None = None

    def body(self, model: str) -> dict[str, object]:
        chat = isinstance(self.prompt, list) and bool(self.prompt) and isinstance(self.prompt[0], dict)
        more: dict[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
        return {
            "model": model,
            "messages" if chat else "prompt": self.prompt,
            "max_tokens": self.tokens,
            "temperature": 0,
            **(more if self.stream else {}),
        }


@dataclass
class Answer:
    """What has come so far. `code` is "" until it failed: the error's code, or the HTTP failure's name.

    `ttft` is seconds to the first text, None without a stream. `asked` and `tokens` are the endpoint's own
    counts, `tokens` else the pieces of the stream. `id` is how the endpoint calls the request.
    """

    id: str
    text: str = ""
    code: str = ""
    said: str = ""
    ttft: float | None = None
    asked: int = 0
    tokens: int = 0
    aborted: bool = False

    def fails(self, code: str, said: str = "") -> None:
        self.code, self.said = code, said[:300]

    def fails_with(self, error: object, status: int) -> None:
        """`error` is the object of an OpenAI error body, as far as there is one."""
        found = error if isinstance(error, dict) else {}
        self.fails(str(found.get("code") or f"http_{status}"), str(found.get("message") or ""))


async def send(client: httpx.AsyncClient, target: Target, request: Request, answer: Answer) -> None:
    """Fills `answer`; never raises for what the endpoint does. Who waits bounds it: it has no deadline."""
    route = "chat/completions" if "messages" in (body := request.body(target.model)) else "completions"
    headers = {**target.headers, HEADER: request.id}
    timeout = httpx.Timeout(None, connect=CONNECT)
    began = time.monotonic()
    url = f"{target.url}/v1/{route}"
    try:
        async with client.stream("POST", url, json=body, headers=headers, timeout=timeout) as response:
            answer.id = response.headers.get(HEADER) or answer.id
            if response.status_code != 200:
                answer.fails_with(_object(await response.aread()).get("error"), response.status_code)
            elif request.stream:
                await _stream(response, request, answer, began)
            else:
                _whole(_object(await response.aread()), answer)
    except httpx.HTTPError as error:
        answer.fails(type(error).__name__, str(error))


def _object(text: bytes | str) -> dict[str, Any]:
    """{} for what is no JSON object."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _whole(document: dict[str, Any], answer: Answer) -> None:
    if not document.get("choices"):
        answer.fails("not_an_answer", "The answer has no choices.")
        return
    answer.text = _text(document)
    _count(document, answer)


async def _stream(response: httpx.Response, request: Request, answer: Answer, began: float) -> None:
    pieces, finished = 0, False
    async for event in _events(response):
        if "error" in event:
            answer.fails_with(event["error"], response.status_code)
            return
        _count(event, answer)
        finished = finished or any(c.get("finish_reason") for c in event.get("choices") or [])
        text = _text(event)
        if text:
            answer.ttft = answer.ttft if answer.ttft is not None else time.monotonic() - began
            answer.text += text
            pieces += 1
            answer.tokens = max(answer.tokens, pieces)
        if request.abort and pieces >= request.abort:
            answer.aborted = True
            return
    if not finished:
        answer.fails("stream_broke", f"The stream ended after {pieces} pieces without its last event.")


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data:") and (event := _object(line[5:].strip())):
            yield event


def _text(document: dict[str, Any]) -> str:
    """The text of a choice: whole or a piece, of a completion or a chat (what it thinks included)."""
    choice = (document.get("choices") or [{}])[0]
    message = choice.get("message") or choice.get("delta") or {}
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    return str(choice.get("text") or "") + str(thought) + str(message.get("content") or "")


def _count(document: dict[str, Any], answer: Answer) -> None:
    usage = document.get("usage")
    if isinstance(usage, dict):
        answer.asked = int(usage.get("prompt_tokens") or 0)
        answer.tokens = int(usage.get("completion_tokens") or 0)


async def ask(
    client: httpx.AsyncClient, url: str, model: str, prompt: str, tokens: int, deadline: float
) -> tuple[str, str]:
    """(text, code) of one greedy completion, `hung` when it has not ended after `deadline` seconds."""
    request = Request(f"ask-{secrets.token_hex(6)}", prompt, tokens, stream=False)
    answer = Answer(request.id)
    try:
        async with asyncio.timeout(deadline):
            await send(client, Target(url, model), request, answer)
    except TimeoutError:
        answer.fails("hung")
    return answer.text, answer.code
