"""Output that follows a grammar, by the llguidance library: which tokens may come next.

It is kept because it does what no small code of ours would do right: JSON Schema, regular expressions and
context-free grammars over a model's own tokens, a mask of a whole vocabulary in about a millisecond.
Imported where a grammar is first asked for, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from engine.text.toolcalls import CLOSE, OPEN

# One way to write a document: a free choice of white space lets a small model write nothing else.
_SPACING: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class GrammarError(ValueError):
    """The grammar, or this model's tokenizer, cannot be used. One sentence."""


def of_schema(schema: dict[str, Any] | str) -> str:
    """The grammar of JSON documents that fit a schema, given as text or as its document."""
    try:
        document = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        return _checked(LLMatcher.grammar_from_json_schema(json.dumps(document), _SPACING))
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"The JSON schema cannot be used: {_first(error)}.") from None


def of_call(schema: dict[str, Any]) -> str:
    """The grammar of one tool call whose JSON fits a schema, as `engine.text.toolcalls` reads it."""
    try:
        body = json.dumps({**schema, "x-guidance": _SPACING})
        return _checked(
            LLMatcher.grammar_from_lark(f'start: "{OPEN}\\n" call "\\n{CLOSE}"\ncall: %json {body}\n')
        )
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"The parameters of a tool cannot be used: {_first(error)}.") from None


def of_regex(pattern: str) -> str:
    """The grammar of texts that match the pattern whole."""
    try:
        return _checked(LLMatcher.grammar_from_regex(pattern))
    except ValueError as error:
        raise GrammarError(f"The regular expression cannot be used: {_first(error)}.") from None


def of_choices(choices: Sequence[str]) -> str:
    """The grammar of exactly these texts, as one expression: a rule each would outgrow the library."""
    try:
        return _checked(LLMatcher.grammar_from_regex("|".join(map(re.escape, choices))))
    except ValueError as error:
        raise GrammarError(f"The choices cannot be used: {_first(error)}.") from None


def _checked(grammar: str) -> str:
    wrong, said = LLMatcher.validate_grammar_with_warnings(grammar)
    if wrong:
        raise GrammarError(said[0])
    return grammar


def _first(error: BaseException) -> str:
    """What is wrong in one line; a parser's picture of it has the reason last."""
    lines = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "it is empty")
    return reason.removeprefix("error:").strip().rstrip(".")


class Guide:
    """How far one answer has come in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._fed = 0

    def allowed(self, output: Sequence[int]) -> bytes:
        """A bit a token, the lowest first, after these tokens of the answer, of which it has seen the earlier
        ones. GrammarError when nothing may follow, or the grammar outgrew the library's limits."""
        for token in output[self._fed :]:
            self._matcher.consume_token(token)
        self._fed = len(output)
        mask = b"" if self._matcher.is_error() else self._matcher.compute_bitmask()
        if not any(mask):
            raise GrammarError(f"The answer cannot go on: {_first(ValueError(self._matcher.get_error()))}.")
        return bytes(mask)

    def follows(self, output: Sequence[int]) -> bool:
        """Whether `output` goes on from what was seen."""
        return self._fed <= len(output)


class Guides:
    """Makes guides for one model. `eos` may end an answer where its grammar may end."""

    def __init__(self, model: Path, eos: Sequence[int]) -> None:
        try:
            text = (model / "tokenizer.json").read_text(encoding="utf-8")
            self._tokenizer = LLTokenizer(text, eos_token=list(eos) or None)
        except Exception as error:  # noqa: BLE001 - the library raises what its parts raise
            raise GrammarError(f"This model's tokenizer follows no grammar: {_first(error)}.") from None

    def begin(self, grammar: str) -> Guide:
        return Guide(LLMatcher(self._tokenizer, grammar, log_level=0))
