"""Answers that follow a grammar: greedy, sampled, preempted, gone on with, and beside free ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from engine.runner import ModelRunner
from engine.text import grammar as g
from tests.engine.group.solo import Solo, tiny_runner
from tests.engine.text.chars import EOS, save
from tests.engine.text.test_grammar import SCHEMA

GRAMMAR = g.of_schema(SCHEMA)
PROMPT = [9, 30, 12, 55, 71, 8]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelRunner, Tokenizer]:
    folder = tmp_path_factory.mktemp("tiny-llama")
    return folder, tiny_runner(folder), save(folder)


def solo(model: Any, **options: Any) -> Solo:
    return Solo(model[1], eos=(EOS,), model=str(model[0]), **options)


def said(model: Any, tokens: list[int]) -> Any:
    assert tokens[-1] == EOS
    return json.loads(model[2].decode(tokens, skip_special_tokens=True))


@pytest.mark.parametrize("sampling", [{}, {"temperature": 2.0, "seed": 3}, {"temperature": 9.0, "top_k": 3}])
def test_a_random_model_writes_a_document_of_the_schema(model: Any, sampling: dict[str, Any]) -> None:
    document = said(model, solo(model).ask("a", PROMPT, 60, grammar=GRAMMAR, **sampling))
    assert set(document) == {"name", "age"} and document["name"] in ("ann", "bob")


def test_a_free_answer_beside_it_is_what_it_is_alone(model: Any) -> None:
    alone = solo(model).ask("free", PROMPT, 20, ignore_eos=True)
    both = solo(model)
    both.submit("free", PROMPT, max_tokens=20, ignore_eos=True)
    both.submit("held", PROMPT, max_tokens=60, grammar=GRAMMAR)
    both.finish()
    assert both.tokens("free") == alone
    said(model, both.tokens("held"))


def test_log_probabilities_are_the_models_own(model: Any) -> None:
    engine = solo(model)
    engine.ask("a", PROMPT, 60, grammar=GRAMMAR, logprobs=1)
    values = [one for out in engine.out for one in out.logprobs]
    assert any(one.value < one.top[0][1] for one in values), (
        "the likeliest token was not allowed, and is shown"
    )


def test_a_preempted_answer_goes_on_where_it_was(model: Any) -> None:
    alone = {
        name: solo(model).ask(name, PROMPT * seed, 60, grammar=GRAMMAR) for seed, name in ((3, "a"), (4, "b"))
    }
    tight = solo(model, pages=16, budget=64, PD_PREFIX_CACHE="0")
    for seed, name in ((3, "a"), (4, "b")):
        tight.submit(name, PROMPT * seed, max_tokens=60, grammar=GRAMMAR)
    tight.finish()
    assert tight.leader._scheduler.preemptions > 0
    assert {name: tight.tokens(name) for name in "ab"} == alone


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_an_answer_that_began_elsewhere_goes_on(model: Any, cut: int) -> None:
    """As after a hand-over of the first token, or of a stream whose engine was lost."""
    whole = solo(model).ask("a", PROMPT, 60, grammar=GRAMMAR)
    rest = solo(model).ask("a", PROMPT + whole[:cut], 60 - cut, grammar=GRAMMAR, earlier=cut)
    assert said(model, whole[:cut] + rest) == said(model, whole)


def test_a_model_without_a_usable_tokenizer_refuses_grammars_alone(model: Any, tmp_path: Path) -> None:
    engine = Solo(model[1], eos=(EOS,), model=str(tmp_path))
    engine.submit("a", PROMPT, grammar=GRAMMAR)
    engine.submit("b", PROMPT, max_tokens=3, ignore_eos=True)
    engine.finish()
    (refused,) = [out for out in engine.out if out.id == "a"]
    assert (refused.code, len(engine.tokens("b"))) == ("invalid_request", 3)
    assert "follows no grammar" in refused.message


def test_an_answer_that_cannot_go_on_ends_with_the_reason(model: Any) -> None:
    engine = solo(model)
    engine.submit("a", [*PROMPT, 50], grammar=g.of_regex("ab"), earlier=1)
    engine.submit("b", PROMPT, max_tokens=3, ignore_eos=True)
    engine.finish()
    assert [(out.code, out.tokens) for out in engine.out if out.id == "a"] == [("engine_failed", [])]
    assert len(engine.tokens("b")) == 3
