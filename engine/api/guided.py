"""What a body asks of the form of an answer: OpenAI's response_format, and the fields of vLLM and SGLang."""

from __future__ import annotations

import asyncio
from typing import Any

from engine.api.schema import ChatBody, CompletionBody, SamplingParams
from engine.group.guiding import library
from engine.http.errors import ParamError

_FORMATS = "text, json_object and json_schema"
_STRUCTURED = ("json", "regex", "choice")


def _wanted(body: CompletionBody | ChatBody | SamplingParams) -> list[tuple[str, str, Any]]:
    """(field, kind, value) of everything that asks for a form; kind is schema, regex or choice."""
    found: list[tuple[str, str, Any]]
    if isinstance(body, SamplingParams):
        found = [("json_schema", "schema", body.json_schema), ("regex", "regex", body.regex)]
        return [(f"sampling_params.{name}", kind, value) for name, kind, value in found if value is not None]
    found = [
        ("guided_json", "schema", body.guided_json),
        ("guided_regex", "regex", body.guided_regex),
        ("guided_choice", "choice", body.guided_choice),
        ("regex", "regex", body.regex),
        ("response_format", "schema", _response_format(body.response_format)),
    ]
    if (structured := body.structured_outputs) is not None:
        for name in structured:
            if name not in _STRUCTURED and structured[name] is not None:
                text = f"structured_outputs.{name} is not supported."
                raise ParamError(f"structured_outputs.{name}", text, "not_supported")
        kinds = zip(_STRUCTURED, ("schema", "regex", "choice"), strict=True)
        found += [(f"structured_outputs.{name}", kind, structured.get(name)) for name, kind in kinds]
    return [entry for entry in found if entry[2] is not None]


def _response_format(form: dict[str, Any] | None) -> Any:
    """The schema of a response_format, None where any text will do."""
    kind = "text" if form is None else form.get("type")
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        at, text = "response_format.type", f"A response_format of type {kind!r} is not supported."
        raise ParamError(at, text, "not_supported", f"There are {_FORMATS}.")
    described = form.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        at = "response_format.json_schema.schema"
        raise ParamError(at, "A response_format of type json_schema needs json_schema.schema, an object.")
    return schema


def _compiled(name: str, kind: str, value: Any) -> str:
    grammars = library()
    try:
        if kind == "schema":
            if not isinstance(value, dict | str):
                raise ParamError(name, f"{name} must be a JSON schema: an object, or its text.")
            return str(grammars.of_schema(value))
        if kind == "call":
            return str(grammars.of_call(value))
        if kind == "regex":
            if not isinstance(value, str):
                raise ParamError(name, f"{name} must be text.")
            return str(grammars.of_regex(value))
        if not isinstance(value, list) or not value or not all(isinstance(v, str) and v for v in value):
            raise ParamError(name, f"{name} must be a list of texts, none empty.")
        return str(grammars.of_choices(value))
    except grammars.GrammarError as error:
        raise ParamError(name, str(error)) from None


async def grammar_of(
    body: CompletionBody | ChatBody | SamplingParams, call: dict[str, Any] | None
) -> str | None:
    """The grammar that an answer must follow, None for any text. ParamError for one that cannot be used.

    `call` is the schema of a tool call that the answer must be.
    """
    wanted = _wanted(body)
    if call is not None:
        wanted.append(("tool_choice", "call", call))
    if not wanted:
        return None
    if len(wanted) > 1:
        names = " and ".join(name for name, _, _ in wanted)
        raise ParamError(wanted[1][0], f"{names} each ask for a form of the answer.", hint="Send one.")
    if body.ignore_eos:
        raise ParamError("ignore_eos", f"An answer that {wanted[0][0]} shapes ends where it is complete.")
    # A grammar may take the library a second, and streams must go on meanwhile.
    return await asyncio.to_thread(_compiled, *wanted[0])
