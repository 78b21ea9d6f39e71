"""Grammars: which tokens may come, what cannot be used is one sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from engine.text import grammar as g
from tests.engine.text.chars import EOS, save

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"enum": ["ann", "bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chars")
    save(path)
    return path


def tokens_of(mask: bytes) -> list[int]:
    return [at for at in range(len(mask) * 8) if mask[at // 8] >> at % 8 & 1]


def written(folder: Path, grammar: str, seed: int) -> str:
    """A text that somebody who picks any token that may come ends up with."""
    tokenizer, guide, output = save(folder), g.Guides(folder, (EOS,)).begin(grammar), list[int]()
    draw = random.Random(seed)
    while not output or output[-1] != EOS:
        output.append(draw.choice(tokens_of(guide.allowed(output))))
    return str(tokenizer.decode(output, skip_special_tokens=True))


@pytest.mark.parametrize("seed", range(5))
def test_any_choice_of_what_may_come_is_a_document_of_the_schema(folder: Path, seed: int) -> None:
    text = written(folder, g.of_schema(SCHEMA), seed)
    document = json.loads(text)
    assert document["name"] in ("ann", "bob") and 0 <= document["age"] <= 99
    assert text == json.dumps(document), "one way to write it"


def test_choices_and_patterns_are_met_whole(folder: Path) -> None:
    assert {written(folder, g.of_choices(["yes", 'a "no"']), s) for s in range(9)} == {"yes", 'a "no"'}
    assert {written(folder, g.of_regex("[ab]{2}c"), s)[-1] for s in range(4)} == {"c"}


@pytest.mark.parametrize("choice", ["a.c", "a|b", "(", "\\d", "[^$]", "a{2}", '"', "x #-&~"])
def test_a_choice_is_a_text_and_no_pattern(folder: Path, choice: str) -> None:
    assert written(folder, g.of_choices([choice]), 0) == choice


def test_thousands_of_choices_can_be_followed(folder: Path) -> None:
    choices = [f"{a}{b}.{c}" for a in "abc" for b in range(40) for c in range(40)]
    assert {written(folder, g.of_choices(choices), s) for s in range(4)} <= set(choices)


def test_an_answer_goes_on_where_another_guide_was(folder: Path) -> None:
    guides, grammar = g.Guides(folder, (EOS,)), g.of_regex("ab*c")
    first, output = guides.begin(grammar), list[int]()
    for _ in range(3):
        output.append(tokens_of(first.allowed(output))[0])
    second = guides.begin(grammar)
    assert second.allowed(output) == first.allowed(output)
    assert not first.follows(output[:1]) and first.follows([*output, 5])


def test_what_does_not_follow_cannot_go_on(folder: Path) -> None:
    guide = g.Guides(folder, (EOS,)).begin(g.of_regex("ab"))
    with pytest.raises(g.GrammarError, match="cannot go on"):
        guide.allowed([50])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: g.of_schema({"type": "objekt"}), "The JSON schema cannot be used: Invalid type: objekt."),
        (lambda: g.of_schema("{"), "The JSON schema cannot be used"),
        (lambda: g.of_schema({"type": "string", "pattern": "("}), "unclosed group"),
        (lambda: g.of_schema({"not": {}}), "Unimplemented keys"),
        (lambda: g.of_schema("5"), "The JSON schema cannot be used: it is no object."),
        (lambda: g.of_regex("[a"), "The regular expression cannot be used: unclosed character class."),
        (lambda: g.of_regex("a{2,1}"), "invalid repetition count range"),
        (lambda: g.of_choices(["\ud800"]), "The choices cannot be used"),
        (lambda: g.Guides(Path("/nowhere"), ()), "This model's tokenizer follows no grammar"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(make: Any, says: str) -> None:
    with pytest.raises(g.GrammarError) as refused:
        make()
    assert says in str(refused.value) and "\n" not in str(refused.value)
