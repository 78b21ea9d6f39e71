"""DeepSeek's families behind the scheduler: page lists with state, pressure, and what prompts share."""

from __future__ import annotations

import pytest
import torch

from engine.runner import ModelRunner
from tests.engine.group.solo import Solo
from tests.engine.models.deepseek import build_deepseek, one_thread  # noqa: F401
from tests.engine.models.tiny import Meeting, ThreadComm

PROMPTS = [
    torch.randint(0, 101, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in (9, 21, 30)
]


@pytest.fixture(scope="module", params=["deepseek_v32", "deepseek_v4"])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    folder = tmp_path_factory.mktemp(request.param)
    build_deepseek(request.param, folder)
    comm = ThreadComm(0, Meeting(1))
    where = {"dtype": "float32", "device": "cpu", "rank": 0, "tp": 1, "page_size": 8, "pages": 96}
    return ModelRunner(folder, comm=comm, **where)  # type: ignore[arg-type]


def test_answers_do_not_depend_on_company_or_on_being_sent_back(runner: ModelRunner) -> None:
    """The pool holds two sequences and a little: a third one is recomputed, its state with it."""
    alone = [Solo(runner, pages=96).ask(f"r{i}", prompt, 8) for i, prompt in enumerate(PROMPTS)]
    state = runner.shape.state_pages
    tight = Solo(runner, budget=16, pages=1 + 3 * state + 9)
    for i, prompt in enumerate(PROMPTS):
        tight.submit(f"r{i}", prompt, max_tokens=8)
    tight.finish()
    assert [tight.tokens(f"r{i}") for i in range(3)] == alone
    assert tight.leader._scheduler.preemptions > 0
    assert tight.leader.life.pages.free == tight.leader.life.pages.total - tight.leader.life.pages.held


def test_prompts_share_pages_of_tokens_and_never_pages_of_state(runner: ModelRunner) -> None:
    solo = Solo(runner, pages=96)
    first = solo.ask("a", PROMPTS[2])
    computed = solo.computed
    assert solo.ask("b", PROMPTS[2]) == first
    reused = computed - (solo.computed - computed)
    assert reused == (0 if runner.shape.state_pages else 24)
