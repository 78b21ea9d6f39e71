"""Bodies of the inference routes. Unknown fields are ignored: routers re-serialise many defaults."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from engine.http.errors import ParamError

Count = Annotated[int, Meta(ge=1, le=1 << 31)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
TokenId = Annotated[int, Meta(ge=0, le=1 << 31)]
Temperature = Annotated[float, Meta(ge=0, le=100)]
TopP = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=1 << 31)]
Top = Annotated[int, Meta(ge=0, le=20)]
Samples = Annotated[int, Meta(ge=1, le=64)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Room = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Stop = Annotated[str, Meta(min_length=1, max_length=512)]
Stops = Stop | Annotated[list[Stop], Meta(max_length=16)]
StopIds = Annotated[list[TokenId], Meta(max_length=64)]
Host = Annotated[str, Meta(min_length=1, max_length=255)]


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Resumable(msgspec.Struct, kw_only=True):
    """Our router may have to carry this stream on elsewhere, so each event brings its token ids along.

    `tokens` were generated and sent before, and the answer goes on after them. `id` and `created` are what
    the client knows the answer by.
    """

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    created: Annotated[int, Meta(ge=0, le=1 << 40)]
    tokens: list[TokenId] = []


class Bootstrap(msgspec.Struct, kw_only=True):
    """What a router adds to both legs: scalars, or lists of length 1."""

    bootstrap_host: Host | list[Host | None] | None = None
    bootstrap_port: Port | list[Port | None] | None = None
    bootstrap_room: Room | list[Room | None] | None = None
    resumable: Resumable | None = None


class OpenAIBody(Bootstrap, kw_only=True):
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    seed: Int64 | None = None
    stop: Stops | None = None
    stop_token_ids: StopIds | None = None
    ignore_eos: bool | None = None
    n: Samples | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    regex: str | None = None


class CompletionBody(OpenAIBody, kw_only=True):
    prompt: str | list[TokenId | str | list[TokenId]]
    logprobs: Top | bool | None = None


class ChatBody(OpenAIBody, kw_only=True):
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None


class SamplingParams(msgspec.Struct, kw_only=True):
    max_new_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    stop: Stops | None = None
    seed: Int64 | None = None
    sampling_seed: Int64 | None = None
    ignore_eos: bool | None = None
    stop_token_ids: StopIds | None = None
    json_schema: str | None = None
    regex: str | None = None


class GenerateBody(Bootstrap, kw_only=True):
    text: str | list[str] | None = None
    input_ids: list[TokenId | list[TokenId]] | None = None
    sampling_params: SamplingParams | None = None
    stream: bool | None = None
    rid: str | None = None


# Options this engine does not have, of the OpenAI API and of what vLLM and SGLang add to it, with the values
# that ask for nothing. Another value would change the answer, so it is refused rather than ignored; null is
# always fine. What could change no answer (user, metadata, store, service_tier, prediction) is not here.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "prompt_logprobs": (0,),
    "return_logprob": (False,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "min_new_tokens": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "typical_p": (1,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "stop_regex": ("", []),
    "include_stop_str_in_output": (False,),
    "no_stop_trim": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
    "custom_logit_processor": (),
    "lora_path": (),
    "input_embeds": (),
    "image_data": (),
    "audio_data": (),
    "video_data": (),
    "return_hidden_states": (False,),
}


# The options that each route takes; elsewhere they are refused.
_OPENAI = (
    "n",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "regex",
)
TAKEN: dict[str, tuple[str, ...]] = {
    "completion": (*_OPENAI, "logprobs"),
    "chat": (*_OPENAI, "logprobs", "top_logprobs", "tools", "tool_choice"),
    "sampling_params": ("json_schema", "regex"),
}


def refuse_unsupported(document: dict[str, Any], prefix: str = "", taken: tuple[str, ...] = ()) -> None:
    """ParamError for an option that this engine cannot honour; `taken` are those that a route has."""
    for name, neutral in _NEUTRAL.items():
        value = document.get(name)
        if value is not None and value not in neutral and name not in taken:
            instead = "".join(f" or send {msgspec.json.encode(v).decode()}" for v in neutral[:1])
            text = f"{prefix}{name} is not supported."
            raise ParamError(f"{prefix}{name}", text, "not_supported", f"Leave it out{instead}.")
