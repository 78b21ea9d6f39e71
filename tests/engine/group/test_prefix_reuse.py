"""Prefix reuse in a whole engine: less is computed, and every bit of every answer is what it was without."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.group import document
from engine.group.leader import admin
from engine.runner import ModelRunner
from tests.engine.group.solo import PAGE, Solo, tiny_runner


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return tiny_runner(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    """The same model over a pool of its own, for an engine that runs beside."""
    return tiny_runner(tmp_path_factory.mktemp("tiny-llama"))


def text(length: int, seed: int = 0) -> list[int]:
    return torch.randint(8, 100, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_growing_conversation_pays_for_what_is_new(runner: ModelRunner, other: ModelRunner) -> None:
    with_, without = Solo(runner), Solo(other, PD_PREFIX_CACHE="0")
    history = text(30)
    for turn in range(4):
        answers = [solo.ask(f"t{turn}", history) for solo in (with_, without)]
        assert answers[0] == answers[1]
        before, history = len(history), history + answers[0] + text(9, turn + 1)
        assert with_.leader.life.pages.cached >= before // PAGE - 1
    assert same(with_.logits, without.logits), "not the same bits"
    assert with_.computed < without.computed / 2
    counters = with_.leader.document()["counters"]
    assert counters["prefix_tokens"] - counters["prefix_tokens_hit"] == with_.computed - 4 * 5
    assert without.leader.document()["counters"]["prefix_tokens_hit"] == 0


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_whatever_is_shared_and_however_it_is_cut_the_bits_are_the_same(
    runner: ModelRunner, other: ModelRunner, data: st.DataObject
) -> None:
    """Prompts that begin alike, budgets that cut them anywhere, a pool that evicts."""
    budget, pages = data.draw(st.integers(5, 40)), data.draw(st.integers(20, 40))
    with_ = Solo(runner, pages=pages, budget=budget)
    for at in range(data.draw(st.integers(2, 4))):
        own = data.draw(st.integers(1, 50))
        common = data.draw(st.integers(0, own))
        prompt = text(50)[:common] + text(own - common, at)
        alone = Solo(other, PD_PREFIX_CACHE="0")
        with_.logits.clear()
        assert with_.ask(f"r{at}", prompt, 3) == alone.ask("r", prompt, 3)
        assert same(with_.logits[-3:], alone.logits[-3:])
        state = document.pages(with_.leader.life)
        assert state["free"] == state["total"] and state["held"] == state["quarantined"] == 0


def test_requests_that_run_at_once_share_and_are_counted_once(runner: ModelRunner) -> None:
    solo = Solo(runner, budget=64)
    prompt = text(41)
    solo.submit("a", prompt, max_tokens=9)
    solo.turn()
    solo.submit("b", prompt, max_tokens=9)
    solo.turn()
    life = solo.leader.life
    assert set(life.pages.pages("a")) & set(life.pages.pages("b")) == set(life.pages.pages("a")[:9])
    state = document.pages(life)
    assert state["held"] == life.pages.span(["a", "b"]) == state["total"] - state["free"]
    life.abort("a", None, "client")
    life.pages.check()
    solo.finish()
    assert solo.tokens("b")[:2] == solo.tokens("a")[:2]
    assert document.pages(life)["held"] == 0


def test_prompts_that_come_together_are_computed_once(runner: ModelRunner) -> None:
    solo = Solo(runner, budget=16)
    for name in "abc":
        solo.submit(name, text(41), max_tokens=2)
    solo.submit("other", text(9, 5), max_tokens=2)
    solo.turn()
    assert [seq.id for seq in solo.leader._scheduler.active] == ["a", "other"], "only the equal ones wait"
    solo.finish()
    assert solo.computed == 41 + 1 + 2 * (41 - 9 * PAGE + 1) + 9 + 1
    assert solo.tokens("a") == solo.tokens("b") == solo.tokens("c")


def test_a_preempted_request_finds_its_prompt_again(runner: ModelRunner) -> None:
    """Two that do not fit together end with the answers they have alone."""
    solo = Solo(runner, pages=17, budget=64)
    alone = {name: Solo(runner).ask(name, text(20, seed), 20) for seed, name in enumerate("ab")}
    for seed, name in enumerate("ab"):
        solo.submit(name, text(20, seed), max_tokens=20)
    solo.finish()
    assert solo.leader._scheduler.preemptions > 0
    assert {name: solo.tokens(name) for name in "ab"} == alone


def test_the_switch(runner: ModelRunner) -> None:
    """PD_PREFIX_CACHE, live: off, nothing is looked up and nothing is kept."""
    solo = Solo(runner)
    solo.ask("a", text(40))
    admin(solo.leader, "timeouts", {"prefix": 0})
    solo.computed = 0
    solo.ask("b", text(40), 1)
    assert solo.computed == 40
    assert admin(solo.leader, "flush", {}) == {"pages": 10}
    solo.ask("c", text(40), 1)
    assert solo.leader.life.pages.cached == 0
    admin(solo.leader, "timeouts", {"PD_PREFIX_CACHE": 1})
    solo.ask("d", text(40), 1)
    solo.computed = 0
    solo.ask("e", text(40), 1)
    assert solo.computed == 40 - 9 * PAGE


def test_pages_that_were_found_corrupt_are_given_to_nobody_else(runner: ModelRunner) -> None:
    solo = Solo(runner)
    solo.submit("a", text(40), max_tokens=50)
    solo.turn()
    (seq,) = solo.leader.life.sequences.values()
    solo.leader.life.fail(seq, "kv_corrupt", "as a transfer would say")
    assert document.pages(solo.leader.life)["cached"] == 0
    solo.computed = 0
    solo.ask("b", text(40), 1)
    assert solo.computed == 40


def test_what_was_computed_over_corrupt_pages_is_given_to_nobody_either(runner: ModelRunner) -> None:
    """Also not once others have computed the beginning anew; nor to one that waited then, or is sent back."""
    solo = Solo(runner, budget=64, pages=22)
    long = text(40) + text(40, 1)
    solo.submit("a", text(41), max_tokens=50)
    solo.turn()
    solo.submit("over it", long, max_tokens=4)
    solo.turn()
    solo.submit("waits", long, max_tokens=1)
    solo.turn()
    life = solo.leader.life
    assert set(life.pages.pages("a")) & set(life.pages.pages("over it")) and life.sequences["waits"].keys
    life.fail(life.sequences["a"], "kv_corrupt", "as a transfer would say")
    life.abort("over it", None, "client")
    solo.computed = 0
    solo.finish()
    assert solo.computed == 80, "the one that waited computes all of it"
    solo.computed = 0
    solo.ask("later", long, 1)
    assert solo.computed == 80 - 19 * PAGE, "from then on what it computed is shared"
