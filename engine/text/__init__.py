"""Text to tokens and back: tokenizer, chat template, incremental detokenizing, stop strings."""

from engine.text.model import TextModel

__all__ = ["TextModel"]
