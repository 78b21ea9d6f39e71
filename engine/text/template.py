"""The chat template of a model folder: Jinja2, sandboxed, since it is code that came with the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.core.errors import ModelError, RequestError
from engine.text.toolcalls import OPEN

# What template code raises on messages it does not expect.
_TEMPLATE_FAILURES = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    RecursionError,
    OverflowError,
)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The arguments are those that templates are written for, in their order: transformers'."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _Generation(Extension):
    """`{% generation %}` … `{% endgeneration %}` mark what is the assistant's, for training: text as any."""

    tags = {"generation"}  # noqa: RUF012 - so the base class has it

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def find_template(model_dir: Path, config: Mapping[str, Any]) -> str | None:
    """Template text: `chat_template.jinja`, else tokenizer_config.json's string or its "default" entry."""
    file = model_dir / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {t.get("name"): t.get("template") for t in value if isinstance(t, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


class ChatTemplate:
    """Renders messages to the text the model was trained on. `special` are names like bos_token.

    `takes_tools`: it has a place for tools; `writes_calls`: calls are as `engine.text.toolcalls` reads them.
    """

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        env = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        env.filters["tojson"] = _tojson
        env.globals["raise_exception"] = _raise
        env.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        try:
            self._template = env.from_string(source)
        except jinja2.TemplateError as e:
            raise ModelError("bad_chat_template", f"The model's chat template does not parse: {e}.") from None
        self._special = dict(special)
        self.takes_tools = "tools" in source
        self.writes_calls = self.takes_tools and OPEN in source

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> str:
        """The prompt text, open for the assistant's turn; RequestError when the template refuses it."""
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=True, **self._special
            )
        except _TEMPLATE_FAILURES as e:
            raise RequestError("invalid_request", f"The chat template refuses these messages: {e}.") from None
