"""Batches: mixed, chunked, padded; what a step reads and writes of the pool."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.core.errors import ConfigError, ModelError
from engine.core.types import Batch, Slice
from engine.runner import ModelRunner
from tests.engine.models.tiny import Meeting, Ranks, ThreadComm, build

A = [5, 60, 3, 99, 17, 42, 8, 8, 31]
B = [71, 2, 90, 90, 14, 6]
PA, PB = [7, 1, 30], [4, 0, 19]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny-llama")
    build("llama", path)
    return path


@pytest.fixture
def ranks(folder: Path) -> Ranks:
    return Ranks(folder)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, atol=1e-5)


def test_chunked_prefill_equals_whole(folder: Path) -> None:
    whole, chunked = Ranks(folder), Ranks(folder)
    want = whole.run(Slice(A, 0, PA, True))
    assert chunked.runners[0].run(Batch(0, [Slice(A[:3], 0, PA, False)])) is None
    assert chunked.runners[0].run(Batch(1, [Slice(A[3:7], 3, PA, False)])) is None
    assert same(chunked.run(Slice(A[7:], 7, PA, True)), want)
    assert same(chunked.runners[0].pool, whole.runners[0].pool)


def test_mixed_batch_equals_each_alone(folder: Path) -> None:
    alone, mixed = Ranks(folder), Ranks(folder)
    alone.run(Slice(A[:-1], 0, PA, True))
    want_a = alone.run(Slice(A[-1:], 8, PA, True))
    want_b = alone.run(Slice(B, 0, PB, True))
    mixed.run(Slice(A[:-1], 0, PA, True))
    # The prefill comes first in the batch, the decode second: logits keep the batch's order.
    got = mixed.run(Slice(B, 0, PB, True), Slice(A[-1:], 8, PA, True))
    assert got.shape == (2, 101)
    assert same(got[0:1], want_b) and same(got[1:2], want_a)
    assert same(mixed.runners[0].pool, alone.runners[0].pool)


def test_only_sampled_slices_have_logits(ranks: Ranks) -> None:
    want = ranks.run(Slice(B, 0, PB, True))
    got = ranks.run(Slice(A, 0, PA, False), Slice(B, 0, PB, True))
    assert got.shape == (1, 101) and same(got, want)


def test_a_step_writes_its_slots_and_no_other(ranks: Ranks) -> None:
    pool = ranks.runners[0].pool
    assert not pool.any()
    ranks.run(Slice(A[:1], 0, PA, True))  # one token: the step is padded, the pool is not
    written = pool.abs().sum((1, 2, 3, 5)) > 0  # [pages, slots]
    assert written.nonzero().tolist() == [[PA[0], 0]]
    ranks.run(Slice(A[1:6], 1, PA, True))
    written = pool.abs().sum((1, 2, 3, 5)) > 0
    assert sorted(written.nonzero().tolist()) == sorted(
        [[PA[0], s] for s in range(4)] + [[PA[1], 0], [PA[1], 1]]
    )


def test_a_row_has_the_same_bits_alone_and_in_any_batch(ranks: Ranks) -> None:
    """What makes a pair equal to one engine: there, other sequences are in the batch."""
    prefill = [Slice(A[:-1], 0, PA, True), Slice(B[:-1], 0, PB, True)]
    decode = [Slice(A[-1:], 8, PA, True), Slice(B[-1:], 5, PB, True)]
    for slices in (prefill, decode):
        together = ranks.run(*slices)
        assert torch.equal(torch.cat([ranks.run(one) for one in slices]), together)
    mixed = ranks.run(Slice(A[:4], 0, [40], True), *decode, Slice(B[:5], 0, [41, 42], True))
    assert torch.equal(mixed[1:3], together)


@pytest.mark.parametrize("cut", [2, 3, 4, 7])
def test_a_prompt_has_the_same_bits_however_it_is_cut(ranks: Ranks, cut: int) -> None:
    """But for a last token that is left alone, which is computed as a decoded one is."""
    whole = ranks.run(Slice(A, 0, PA, True))
    pool = ranks.runners[0].pool
    stored = pool[PA].clone()
    pool.zero_()
    ranks.run(Slice(A[:cut], 0, PA, True))
    assert torch.equal(ranks.run(Slice(A[cut:], cut, PA, True)), whole) and torch.equal(pool[PA], stored)


def test_pages_are_what_is_read(ranks: Ranks) -> None:
    """KV moved to other pages serves as well as where it was computed: that is what a transfer does."""
    ranks.run(Slice(A[:-1], 0, PA, True))
    want = ranks.run(Slice(A[-1:], 8, PA, True))
    pool = ranks.runners[0].pool
    moved = [50, 51, 52]
    pool[moved] = pool[PA].clone()
    pool[PA] = 77.0
    assert same(ranks.run(Slice(A[-1:], 8, moved, True)), want)


@pytest.mark.parametrize(
    "wrong",
    [
        Slice([], 0, PA, True),
        Slice(A, 0, PA[:2], True),
        Slice([101], 0, PA, True),
        Slice([-1], 0, PA, True),
        Slice([1], 256, list(range(65)), True),
        Slice([1], -1, PA, True),
        Slice([1], 0, [64], True),
    ],
)
def test_a_slice_that_does_not_fit_is_refused_before_anything_is_written(ranks: Ranks, wrong: Slice) -> None:
    with pytest.raises(ValueError):
        ranks.run(Slice(B, 0, PB, True), wrong)
    assert not ranks.runners[0].pool.any()


def test_an_empty_batch_is_nothing(ranks: Ranks) -> None:
    assert ranks.runners[0].run(Batch(0, [])) is None


def test_what_a_runner_says_of_its_model(folder: Path, ranks: Ranks) -> None:
    runner = ranks.runners[0]
    assert (runner.shape.layers, runner.shape.kv_heads, runner.shape.head_dim) == (3, 3, 8)
    assert (runner.shape.page_size, runner.shape.itemsize) == (4, 4)
    assert runner.pool.shape == (64, 3, 3, 2, 4, 8) and runner.pool.is_contiguous()
    assert runner.pool.nbytes == 64 * 3 * runner.shape.head_bytes
    assert runner.max_model_len == 256 and runner.eos == (7,) and len(runner.digest) == 16


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"dtype": "int8"}, ConfigError, "--dtype int8"),
        ({"device": "tpu9"}, ConfigError, "--device tpu9"),
        ({"pages": 0}, ConfigError, "0 pages"),
        ({"pages": 10**12}, ModelError, "cannot be allocated"),
    ],
)
def test_a_runner_that_cannot_be_is_one_sentence(
    folder: Path, options: dict[str, object], error: type[Exception], text: str
) -> None:
    values: dict[str, object] = {"dtype": "float32", "device": "cpu", "page_size": 4, "pages": 8} | options
    with pytest.raises(error, match=text):
        ModelRunner(folder, rank=0, tp=1, comm=ThreadComm(0, Meeting(1)), **values)  # type: ignore[arg-type]
