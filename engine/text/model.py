"""The text side of a model folder: tokenizer.json, special tokens, chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from engine.core.errors import ModelError, RequestError
from engine.text.detokenize import Detokenizer
from engine.text.template import ChatTemplate, find_template


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        document = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as e:
        raise ModelError("bad_tokenizer", f"{path} cannot be read: {e}.") from None
    return document if isinstance(document, dict) else {}


def _special(config: Mapping[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, … as text; each is a string or {"content": string} in the file."""
    found: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


class TextModel:
    """Text to token ids and back. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None = None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        # A normalizer may join characters (é from e and an accent), no known one more than four.
        longest = max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._longest = longest * (1 if tokenizer.normalizer is None else 4)

    @classmethod
    def load(cls, model_dir: Path) -> TextModel:
        """Read a model folder; ModelError when its tokenizer or template cannot be used."""
        path = model_dir / "tokenizer.json"
        if not path.is_file():
            raise ModelError("no_tokenizer", f"{path} does not exist.", "Convert the model again.")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as e:  # noqa: BLE001 - the tokenizers library raises plain Exception
            raise ModelError("bad_tokenizer", f"{path} cannot be used: {e}.") from None
        # Both are settings for training batches that such a file may carry; a server must see every token.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        config = _config(model_dir / "tokenizer_config.json")
        source = find_template(model_dir, config)
        return cls(tokenizer, None if source is None else ChatTemplate(source, _special(config)))

    @property
    def vocab_size(self) -> int:
        """Number of token ids the tokenizer knows; valid ids are below it."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def least_tokens(self, characters: int) -> int:
        """No text of so many characters has fewer: one far too long is refused without being encoded."""
        return characters // self._longest

    @property
    def has_chat(self) -> bool:
        return self._template is not None

    @property
    def takes_tools(self) -> bool:
        return self._template is not None and self._template.takes_tools

    @property
    def writes_calls(self) -> bool:
        return self._template is not None and self._template.writes_calls

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the tokens the model puts around one (a BOS, if it has one)."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of token ids without special tokens; broken UTF-8 shows as U+FFFD."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def show(self, token: int) -> str:
        """A token's own text, special tokens and leading spaces included; a part of a character is U+FFFD."""
        # Some decoders drop the leading space of the first token, so the second one of a pair is looked at.
        once, twice = (str(self._tokenizer.decode([token] * n, skip_special_tokens=False)) for n in (1, 2))
        return twice[len(once) :]

    def chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> list[int]:
        """Token ids of a conversation; RequestError when the model has no template or it refuses."""
        if self._template is None:
            raise RequestError(
                "no_chat_template",
                "This model has no chat template.",
                400,
                "Use /v1/completions with a prompt.",
            )
        text = self._template.render(messages, tools)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def detokenizer(self, prompt: Sequence[int]) -> Detokenizer:
        """Text of the tokens that follow `prompt`."""
        return Detokenizer(self.decode, prompt)
