"""The tokenizer inside a GGUF file as a `tokenizers` object.

Byte-level BPE only. The pre-tokenizers are the ones llama.cpp names in `tokenizer.ggml.pre`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from engine.core.errors import ModelError
from engine.weights.gguf_file import GgufFile

_CONTROL, _USER_DEFINED = 3, 4
_GPT4_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class _Pre:
    """How text is split before BPE. `split` empty: GPT-2's own regex; `digits`: each digit alone first."""

    split: str = ""
    digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False


_PRE: dict[str, _Pre] = {
    "default": _Pre(),
    "gpt-2": _Pre(),
    "smollm": _Pre(digits=True),
    "qwen2": _Pre(split=_GPT4_SPLIT % "", nfc=True),
    "llama-bpe": _Pre(split=_GPT4_SPLIT % "{1,3}", ignore_merges=True),
    "llama3": _Pre(split=_GPT4_SPLIT % "{1,3}", ignore_merges=True),
}


def build_tokenizer(file: GgufFile) -> Tokenizer:
    """ModelError when the file's tokenizer is of a kind this cannot rebuild exactly."""
    kind = str(file.value("tokenizer.ggml.model"))
    name = str(file.get("tokenizer.ggml.pre") or "default")
    pre = _PRE.get(name)
    if kind != "gpt2" or pre is None:
        raise ModelError(
            "gguf_unsupported",
            f"{file.path}: the tokenizer {kind}/{name} is not supported "
            f"(supported: gpt2 with {', '.join(sorted(_PRE))}).",
            "Use the model's Hugging Face folder instead.",
        )
    tokens: list[str] = file.value("tokenizer.ggml.tokens")
    merges = [tuple(line.split(" ", 1)) for line in file.value("tokenizer.ggml.merges")]
    vocab = {token: id for id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=pre.ignore_merges))
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = _post_processor(file, tokens)
    types: list[int] = file.get("tokenizer.ggml.token_type") or []
    special = [t for t, kind in zip(tokens, types, strict=False) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def _pre_tokenizer(pre: _Pre) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pre.split)
    if pre.split:
        first = pre_tokenizers.Split(Regex(pre.split), behavior="isolated", invert=False)
        return pre_tokenizers.Sequence([first, byte_level])
    if pre.digits:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


def _post_processor(file: GgufFile, tokens: list[str]) -> processors.PostProcessor:
    byte_level = processors.ByteLevel(trim_offsets=False)
    bos = file.get("tokenizer.ggml.bos_token_id")
    if not file.get("tokenizer.ggml.add_bos_token") or bos is None:
        return byte_level
    begin = tokens[bos]
    template = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, bos)]
    )
    return processors.Sequence([byte_level, template])
