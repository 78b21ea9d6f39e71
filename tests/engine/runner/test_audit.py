"""Index-K that is no longer what was stored ends the engine in words, on whichever rank it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.core.errors import EngineError
from engine.core.types import Batch, Slice
from engine.layers.indexer import KEYS
from engine.runner import ModelRunner, Tuning
from engine.runner.audit import Audit
from tests.engine.models.deepseek import build_deepseek, one_thread  # noqa: F401
from tests.engine.models.tiny import Meeting, Ranks, ThreadComm, build

PAGE, TOKENS = 16, list(range(3, 43))
EVERY = 4


@pytest.fixture(scope="module", params=["deepseek_v32", "deepseek_v4"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    build_deepseek(request.param, path)
    return path


def pages(runner: ModelRunner) -> list[int]:
    return list(range(20, 24 + runner.shape.state_pages))


def key_of(runner: ModelRunner, layer: int) -> torch.Tensor:
    """int16 bits of the first entry's key in layer number `layer`."""
    cache = runner._index
    assert cache is not None
    page = pages(runner)[runner.shape.state_pages]
    return cache._layout.paged(runner.pool, KEYS, layer)[page, 0].view(torch.int16)


def run(runner: ModelRunner, steps: int) -> None:
    runner.run(Batch(0, [Slice(TOKENS[:30], 0, pages(runner), False)]))
    for at in range(30, 29 + steps):
        runner.run(Batch(1, [Slice([TOKENS[at]], at, pages(runner), True)]))


def test_a_flipped_bit_is_found_by_a_sample_of_its_layer(folder: Path) -> None:
    comm = ThreadComm(0, Meeting(1))
    where = {"dtype": "float32", "device": "cpu", "rank": 0, "tp": 1, "page_size": PAGE, "pages": 64}
    tuning = Tuning(index_check=EVERY)
    runner = ModelRunner(folder, comm=comm, tuning=tuning, **where)  # type: ignore[arg-type]
    run(runner, EVERY - 1)
    key_of(runner, 1)[3] ^= 1
    layer = runner._index.layers[1]  # type: ignore[union-attr]
    with pytest.raises(
        EngineError, match=f"rank 0 is not what it has stored there: layer {layer}: 1 entries"
    ):
        runner.run(Batch(1, [Slice([5], 32, pages(runner), True)]))


def test_samples_of_what_is_right_say_nothing(folder: Path) -> None:
    ranks = Ranks(folder, 2, page_size=PAGE, tuning=Tuning(index_check=1))
    own = pages(ranks.runners[0])
    ranks.run(Slice(TOKENS[:30], 0, own, True))
    for at in range(30, 36):
        ranks.run(Slice([TOKENS[at]], at, own, True))


class Other:
    """A communicator of two ranks, of which the other one's sum is this one's and `more`."""

    rank, tp = 0, 2

    def __init__(self, more: int) -> None:
        self._more = more

    def all_reduce(self, t: torch.Tensor) -> torch.Tensor:
        return t.mul_(2).add_(self._more)

    def gather_cat(self, t: torch.Tensor) -> torch.Tensor | None:
        raise AssertionError("a sample gathers nothing")


def test_ranks_that_differ_are_found_though_each_is_right_by_itself(folder: Path) -> None:
    runner = Ranks(folder, page_size=PAGE).runners[0]
    run(runner, 1)
    batch = Batch(1, [Slice([5], 29, pages(runner), True)])
    index, state = runner._index, runner.shape.state_pages
    assert index is not None
    Audit(index, runner.pool, state, Other(0), every=1).after(batch)
    with pytest.raises(EngineError, match="differs from that of other ranks in layer"):
        Audit(index, runner.pool, state, Other(1), every=1).after(batch)


def test_what_has_arrived_is_verified_by_place(folder: Path) -> None:
    """As a decode rank asks after a transfer: pages in the order of transfer."""
    runner = Ranks(folder, page_size=PAGE).runners[0]
    run(runner, 1)
    state = runner.shape.state_pages
    sent = [*pages(runner)[state:], *pages(runner)[:state]]
    assert runner.damage(sent, 30) == ""
    swapped = [sent[1], sent[0], *sent[2:]]
    assert "the first of token 0" in runner.damage(swapped, 30)
    key_of(runner, 0)[0] ^= 1 << 9
    assert runner.damage(sent, 30).startswith(f"layer {runner._index.layers[0]}: 1 entries")  # type: ignore[union-attr]


def test_a_model_without_index_k_has_nothing_to_verify(tmp_path: Path) -> None:
    build("llama", tmp_path)
    assert Ranks(tmp_path).runners[0].damage([0, 1], 8) == ""
