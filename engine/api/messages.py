"""Messages of a chat, from the OpenAI API's shape to the one that chat templates know."""

from __future__ import annotations

from typing import Any

from engine.api.tools import calls_of
from engine.http.errors import ParamError

# Roles of the OpenAI API, and what chat templates call them: "developer" is its newer word for "system".
ROLES = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
}  # fmt: skip


def message_of(message: dict[str, Any], at: str, tools: bool) -> dict[str, Any]:
    """The message with its content as one string; ParamError for what is none.

    `tools`: the chat template knows calls and their results.
    """
    role = message.get("role")
    if role == "function" or message.get("function_call"):
        of = "role" if role == "function" else "function_call"
        raise ParamError(f"{at}.{of}", "Functions are not supported.", "not_supported", "Use tools.")
    if not isinstance(role, str) or role not in ROLES:
        what = f"{role!r} is not a role." if isinstance(role, str) else "A message needs a role."
        raise ParamError(f"{at}.role", what, hint=f"Roles are {', '.join(ROLES)}.")
    called = role == "assistant" and message.get("tool_calls")
    if not tools and (called or role == "tool"):
        text = "The chat template of this model knows no tools."
        raise ParamError(f"{at}.{'tool_calls' if called else 'role'}", text, "not_supported")
    calls = calls_of(message, at) if called else []
    content = message.get("content")
    if content is None and calls:
        content = ""
    made = {**message, "role": ROLES[role], "content": _text(content, at)}
    made.pop("tool_calls", None)
    return {**made, "tool_calls": calls} if calls else made


def _text(content: Any, at: str) -> str:
    if isinstance(content, list) and content:
        parts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in content]
        if not all(isinstance(p, str) for p in parts):
            raise ParamError(f"{at}.content", "Only text content is supported.", "not_supported")
        content = "".join(str(p) for p in parts)
    if not isinstance(content, str):
        raise ParamError(f"{at}.content", "The content of a message must be text.")
    return content
