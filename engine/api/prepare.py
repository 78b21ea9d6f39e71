"""From a validated body to a Request: tokens, sampling, leg."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.api.bootstrap import leg_of
from engine.api.client import GroupClient
from engine.api.guided import grammar_of
from engine.api.logprobs import asked_for
from engine.api.messages import message_of
from engine.api.resume import continued
from engine.api.schema import ChatBody, CompletionBody, GenerateBody, OpenAIBody, Resumable, SamplingParams
from engine.api.tools import Tools, tools_of
from engine.core.errors import RequestError
from engine.core.types import Request, Sampling
from engine.http.errors import ParamError
from engine.http.models import check_served
from engine.text.model import TextModel

# Text longer than this is tokenised in a thread, so that other streams keep moving.
_THREAD_FROM = 4096


@dataclass(frozen=True)
class Call:
    """One request and how its answer should look. What was generated before is part of its prompt.

    `n` answers are wanted, each of which begins anew.
    """

    request: Request
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    resumable: Resumable | None = None
    n: int = 1
    calls: frozenset[str] = frozenset()  # functions whose calls are told apart from the text

    @property
    def earlier(self) -> list[int]:
        """Output tokens that an engine generated and the client has already."""
        return [] if self.resumable is None else self.resumable.tokens

    @property
    def prompt(self) -> list[int]:
        """What the client asked with."""
        return self.request.prompt[: len(self.request.prompt) - len(self.earlier)]


async def _off_loop(size: int, work: Callable[[], list[int]]) -> list[int]:
    return await asyncio.to_thread(work) if size > _THREAD_FROM else work()


def _one_prompt(name: str, value: str | Sequence[Any] | None) -> str | list[int]:
    """A string or token ids, also when they come as the only element of a list."""
    if value is None or isinstance(value, str):
        prompt: Any = value
    elif len(value) == 1 and isinstance(value[0], str | list):
        prompt = value[0]
    elif value and all(isinstance(v, str | list) for v in value):
        raise ParamError(name, "Batches are not supported: one prompt for each request.", "not_supported")
    else:
        prompt = list(value)
    if isinstance(prompt, list) and not all(isinstance(v, int) for v in prompt):
        raise ParamError(name, f"{name} must be text or a list of token ids.")
    if not prompt:
        raise ParamError(name, f"{name} must not be empty.")
    return prompt


async def _tokens(name: str, prompt: str | list[int], text: TextModel, window: int) -> list[int]:
    if isinstance(prompt, str):
        _fits(text.least_tokens(len(prompt)), window)
        tokens = await _off_loop(len(prompt), lambda: text.encode(prompt))
    else:
        tokens = prompt
        largest = max(tokens)
        if largest >= text.vocab_size:
            raise ParamError(name, f"Token id {largest} is not in the vocabulary of {text.vocab_size}.")
    if not tokens:
        raise ParamError(name, f"{name} must not be empty.")
    return tokens


def _sampling(
    body: OpenAIBody | SamplingParams, wanted: int, room_left: int, logprobs: int | None
) -> Sampling:
    """Sampling with the OpenAI defaults; `wanted` tokens at most, within what the window has left."""
    top_k = body.top_k or 0
    return Sampling(
        max_tokens=min(wanted, room_left),
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(top_k, 0),
        seed=body.seed,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        logprobs=logprobs,
    )


def _fits(least: int, window: int) -> None:
    """RequestError for a text that no encoding makes short enough; encoding megabytes of it costs seconds."""
    if least >= window:
        message = f"The prompt has over {least} tokens and the model's window is {window}."
        raise RequestError("context_length_exceeded", message, 400)


def _room_left(tokens: list[int], window: int) -> int:
    left = window - len(tokens)
    if left < 1:
        message = f"The prompt has {len(tokens)} tokens and the model's window is {window}."
        hint = "At least one place must be left for the answer."
        raise RequestError("context_length_exceeded", message, 400, hint)
    return left


def _stops(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


class Preparer:
    """Turns bodies into calls for one engine."""

    def __init__(self, client: GroupClient, text: TextModel) -> None:
        self._client = client
        self._text = text

    async def _request(
        self,
        id: str,
        body: CompletionBody | ChatBody | GenerateBody,
        tokens: list[int],
        params: CompletionBody | ChatBody | SamplingParams,
        wanted: int,
        tools: Tools | None = None,
    ) -> Request:
        info = self._client.info
        bootstrap = self._client.state().get("bootstrap") if info.role == "decode" else None
        room, peer = leg_of(body, info.role, bootstrap)
        left = _room_left(tokens, info.max_model_len)
        sampling = _sampling(params, wanted, left, asked_for(body))
        grammar = await grammar_of(params, tools.call_schema if tools else None)
        request = Request(id=id, prompt=tokens, sampling=sampling, grammar=grammar, room=room, peer=peer)
        return continued(request, body.resumable, bool(body.stream), self._text.vocab_size)

    async def _tokens(self, name: str, value: str | Sequence[Any] | None) -> list[int]:
        return await _tokens(name, _one_prompt(name, value), self._text, self._client.info.max_model_len)

    def _served(self, model: str | None) -> None:
        """404 for a model that is not served here; a gateway that was given none may say "unknown"."""
        if model not in (None, "", "unknown"):
            check_served(model, self._client.info.served_model_name)

    def _openai(self, request: Request, body: OpenAIBody) -> Call:
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        n = body.n or 1
        if n > 1 and body.resumable is not None:
            if body.resumable.tokens:
                raise ParamError("resumable.tokens", "Of several answers none goes on after earlier tokens.")
            return Call(request, _stops(body.stop), bool(body.stream), usage, None, n)
        return Call(request, _stops(body.stop), bool(body.stream), usage, body.resumable, n)

    async def completion(self, id: str, body: CompletionBody) -> Call:
        self._served(body.model)
        tokens = await self._tokens("prompt", body.prompt)
        wanted = 16 if body.max_tokens is None else body.max_tokens
        return self._openai(await self._request(id, body, tokens, body, wanted), body)

    async def chat(self, id: str, body: ChatBody) -> Call:
        self._served(body.model)
        known = self._text.takes_tools
        messages = [message_of(m, f"messages[{i}]", known) for i, m in enumerate(body.messages)]
        tools = self._tools(body)
        size = sum(len(m["content"]) for m in messages)
        _fits(self._text.least_tokens(size), self._client.info.max_model_len)
        tokens = await _off_loop(size, lambda: self._text.chat(messages, tools.offered))
        wanted = body.max_completion_tokens or body.max_tokens or self._client.info.max_model_len
        call = self._openai(await self._request(id, body, tokens, body, wanted, tools), body)
        return replace(call, calls=tools.names) if self._text.writes_calls else call

    def _tools(self, body: ChatBody) -> Tools:
        tools = tools_of(body.tools, body.tool_choice)
        if tools.offered and not self._text.takes_tools:
            raise ParamError("tools", "The chat template of this model knows no tools.", "not_supported")
        if tools.forced and not self._text.writes_calls:
            text = "How this model writes a call is not known here, so none can be forced."
            raise ParamError("tool_choice", text, "not_supported", 'Send "auto".')
        return tools

    async def generate(self, id: str, body: GenerateBody) -> Call:
        if (body.text is None) == (body.input_ids is None):
            raise ParamError("text", "Give either text or input_ids.")
        name = "text" if body.input_ids is None else "input_ids"
        tokens = await self._tokens(name, getattr(body, name))
        params = body.sampling_params or SamplingParams()
        params.seed = params.sampling_seed if params.seed is None else params.seed
        wanted = 128 if params.max_new_tokens is None else params.max_new_tokens
        request = await self._request(id, body, tokens, params, wanted)
        return Call(request, _stops(params.stop), bool(body.stream), True, body.resumable)
