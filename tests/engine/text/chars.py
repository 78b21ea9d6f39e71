"""A tokenizer of printable ASCII, one character a token, for models of a hundred tokens."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

EOS = 7
CHARS = list(map(chr, range(33, 127)))
VOCAB = {"Ġ": 0, "<eos>": EOS} | {c: at + 1 + (at >= EOS - 1) for at, c in enumerate(CHARS)}


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE(VOCAB, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<eos>"])
    return made


def save(folder: Path) -> Tokenizer:
    """Beside a model's weights; the tokenizer."""
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    return made
