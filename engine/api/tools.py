"""Tools of a chat: what a body may offer and ask for, and the messages that are about calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.http.errors import ParamError

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CHOICES = 'There are "none", "auto", "required" and {"type": "function", "function": {"name": …}}.'


@dataclass(frozen=True)
class Tools:
    """`offered` are shown to the model; `forced` are the functions of which one must be called, if any."""

    offered: tuple[dict[str, Any], ...] = ()
    forced: tuple[dict[str, Any], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool["function"]["name"] for tool in self.offered)

    @property
    def call_schema(self) -> dict[str, Any] | None:
        """The JSON schema of a call that is forced."""
        if not self.forced:
            return None
        return {"anyOf": [_call_schema(tool["function"]) for tool in self.forced]}


def _call_schema(function: dict[str, Any]) -> dict[str, Any]:
    """Parameters stay a schema by themselves: their references ("#/$defs/…") are to what is in them."""
    parameters = function.get("parameters") or {"type": "object"}
    return {
        "type": "object",
        "properties": {
            "name": {"const": function["name"]},
            "arguments": {"$id": f"tool:{function['name']}", **parameters},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def tools_of(tools: Sequence[Any] | None, choice: Any) -> Tools:
    """ParamError naming what is wrong with `tools` or `tool_choice`."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise ParamError("tool_choice", "tool_choice needs tools.", hint="Send tools, or leave it out.")
        return Tools()
    offered = tuple(_tool(tool, f"tools[{at}]") for at, tool in enumerate(tools))
    names = [tool["function"]["name"] for tool in offered]
    if len(set(names)) < len(names):
        raise ParamError("tools", "Two tools have the same name.")
    if choice == "none":
        return Tools()
    if choice in (None, "auto"):
        return Tools(offered)
    if choice == "required":
        return Tools(offered, offered)
    named = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str):
        raise ParamError("tool_choice", f"tool_choice is none of what it may be. {_CHOICES}")
    if name not in names:
        raise ParamError("tool_choice.function.name", f"{name} is not one of the tools.")
    return Tools(offered, tuple(tool for tool in offered if tool["function"]["name"] == name))


def _tool(tool: Any, at: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict):
        text = f'{at} must be {{"type": "function", "function": …}}.'
        raise ParamError(at, text, "not_supported" if isinstance(tool, dict) else "invalid_request")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        text = "A function needs a name of 1..64 letters, digits, dots, dashes and underscores."
        raise ParamError(f"{at}.function.name", text)
    if not isinstance(function.get("parameters") or {}, dict):
        raise ParamError(f"{at}.function.parameters", "The parameters of a function are a JSON schema.")
    return {"type": "function", "function": function}


def calls_of(message: dict[str, Any], at: str) -> list[dict[str, Any]]:
    """The tool calls of an assistant's message as chat templates know them, arguments as a document."""
    calls = message.get("tool_calls")
    if not calls:
        return []
    if not isinstance(calls, list):
        raise ParamError(f"{at}.tool_calls", "tool_calls must be a list.")
    return [_call(call, f"{at}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _call(call: Any, at: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ParamError(f"{at}.function", "A tool call needs function.name.")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise ParamError(f"{at}.function.arguments", "The arguments are not JSON.") from None
    if not isinstance(arguments, dict):
        raise ParamError(f"{at}.function.arguments", "The arguments of a call must be a JSON object.")
    return {**call, "type": "function", "function": {**function, "arguments": arguments}}
