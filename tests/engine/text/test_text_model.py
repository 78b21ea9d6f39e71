"""A model folder's text side, on a tokenizer made here and on the real small model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.core.errors import ModelError, RequestError
from engine.text import TextModel

TEXTS = ["Hello world", "naïve café — 数学 🤖👩‍👩‍👧", "tabs\tand\nnewlines", " leading space"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [], trainers.BpeTrainer(initial_alphabet=alphabet, special_tokens=["<eos>"])
    )
    tokenizer.enable_truncation(4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_text_survives_and_a_files_truncation_is_off(folder: Path) -> None:
    text = TextModel.load(folder)
    for sample in TEXTS:
        tokens = text.encode(sample)
        assert len(tokens) >= len(sample) and max(tokens) < text.vocab_size
        assert text.decode(tokens) == sample


def test_a_model_without_a_template_says_so(folder: Path) -> None:
    text = TextModel.load(folder)
    assert not text.has_chat
    with pytest.raises(RequestError) as e:
        text.chat([{"role": "user", "content": "hi"}])
    assert e.value.code == "no_chat_template" and e.value.hint


def test_chat_uses_the_special_tokens_of_the_config(folder: Path) -> None:
    config = {"eos_token": {"content": "<eos>"}, "chat_template": "{{ messages[0].content }}{{ eos_token }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    text = TextModel.load(folder)
    assert text.chat([{"role": "user", "content": "hi"}]) == [*text.encode("hi"), 0]
    assert text.decode([*text.encode("hi"), 0]) == "hi"


@pytest.mark.parametrize("content", [None, "{", '{"model": 1}'])
def test_an_unusable_tokenizer_is_a_model_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError) as e:
        TextModel.load(tmp_path)
    assert str(tmp_path) in e.value.message


def test_the_real_model_streams_what_it_decodes(smollm: Path) -> None:
    text = TextModel.load(smollm)
    prompt = text.encode("Say:")
    for sample in TEXTS:
        tokens = text.encode(sample)
        detokenizer = text.detokenizer(prompt)
        pieces = [detokenizer.add([t]) for t in tokens]
        assert "".join(pieces) + detokenizer.finish() == sample
        assert all("\ufffd" not in p for p in pieces)


def test_the_real_models_chat_template(smollm: Path) -> None:
    text = TextModel.load(smollm)
    if not text.has_chat:
        pytest.skip("this conversion has no chat template")
    tokens = text.chat([{"role": "user", "content": "What is 2+2?"}])
    assert "What is 2+2?" in text.decode(tokens)
    assert tokens != text.encode("What is 2+2?")
