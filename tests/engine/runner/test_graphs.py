"""Decode steps by size: which rows, which memory, when they are captured, and the bits of the eager step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.core.settings import Settings
from engine.core.types import Batch, Slice
from engine.runner import ModelRunner, Tuning
from engine.runner.graphs import DecodeRows, sizes
from tests.engine.models.deepseek import build_deepseek, one_thread  # noqa: F401
from tests.engine.models.tiny import build
from tests.engine.runner.streamed import PAGES, Replayed, next_step, played_wrong, prompts, run, runner_on

MOST = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen3")
    build("qwen3", path)
    return path


@pytest.mark.parametrize(
    ("least", "most", "found"),
    [
        (1, 1, (1,)),
        (1, 8, (1, 2, 4, 8)),
        (1, 13, (1, 2, 4, 8, 13)),
        (4, 5, (4, 5)),
        (4, 2, (4,)),
    ],
)
def test_sizes_double_up_to_the_most_that_run(least: int, most: int, found: tuple[int, ...]) -> None:
    assert sizes(least, most) == found


def test_a_row_of_padding_has_no_length_and_writes_into_the_spare_page() -> None:
    rows = DecodeRows.of([Slice([5], 33, [4, 9, 2], True), Slice([6], 0, [7], True)], 4, 16, spare=99)
    assert (rows.tokens, rows.positions) == ([5, 6, 0, 0], [33, 0, 0, 0])
    assert (rows.page, rows.slot) == ([2, 7, 99, 99], [1, 0, 0, 0])
    assert (rows.tables, rows.lengths) == ([[4, 9, 2], [7], [], []], [34, 1, 0, 0])


def prepared(folder: Path) -> tuple[ModelRunner, list[int]]:
    """A runner whose steps are captured, and the sizes that it plays from then on."""
    runner, played = runner_on(folder, Replayed(), MOST), []
    runner.prepare()
    graphs = runner._graphs
    assert graphs is not None
    for size, play in graphs._played.items():
        graphs._played[size] = lambda size=size, play=play: (played.append(size), play())  # type: ignore[misc]
    return runner, played


def test_a_played_step_has_the_bits_of_the_eager_one_whatever_is_in_its_batch(folder: Path) -> None:
    eager, (graphed, played) = runner_on(folder, max_running=MOST), prepared(folder)
    assert graphed.pool.shape == eager.pool.shape and not graphed.pool.any(), "padding is nobody's"
    slices = prompts(eager, (7, 24, 1, 14, 3, 15))
    want, got = (run(runner, slices) for runner in (eager, graphed))
    assert torch.equal(got, want) and played == []
    steps = next_step(slices, want)
    for count in (6, 2, 5, 1, 4, 3):
        want, got = (run(runner, steps[:count]) for runner in (eager, graphed))
        assert torch.equal(got, want) and torch.equal(graphed.pool, eager.pool), count
        steps[:count] = next_step(steps[:count], want)
    assert len(played) == 6 and set(played) <= set(graphed._graphs.sizes)  # type: ignore[union-attr]


def test_the_gpus_lane_tells_captured_tokens_from_other_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `make gpu` runs on a device, on streams that compute again what they have captured."""
    assert played_wrong(runner_on(folder), runner_on(folder, Replayed())) == ""
    assert played_wrong(runner_on(folder), runner_on(folder)) == "no decode step was captured"
    rows = DecodeRows.of
    monkeypatch.setattr(DecodeRows, "of", lambda slices, *args, **named: rows(slices[::-1], *args, **named))
    assert "2 sequences, step 0: other tokens" in played_wrong(
        runner_on(folder), runner_on(folder, Replayed())
    )


def test_only_steps_that_decode_and_sample_are_played(folder: Path) -> None:
    runner, played = prepared(folder)
    slices = prompts(runner, (4, 9))
    after = next_step(slices, run(runner, slices))
    for batch in (
        [after[0], slices[1]],
        [after[0], Slice(after[1].tokens, after[1].start, after[1].pages, False)],
    ):
        run(runner, batch)
    many = [Slice([1], 0, [20 + i], True) for i in range(MOST + 1)]
    assert run(runner, many).shape[0] == MOST + 1
    assert played == []
    run(runner, after)
    assert len(played) == 1


def test_what_a_step_brings_is_copied_into_memory_that_never_moves(folder: Path) -> None:
    runner, _ = prepared(folder)
    graphs = runner._graphs
    assert graphs is not None

    def addresses() -> list[int]:
        kept = (graphs._numbers, graphs._kv_rows, graphs._sampled, graphs._logits)
        return [t.data_ptr() for t in (*kept, graphs._pool, graphs._planner.cos, graphs._planner.sin)]

    before = addresses()
    slices = prompts(runner, (4, 9))
    first = run(runner, next_step(slices, run(runner, slices)))
    kept = first.clone()
    run(runner, [Slice([3], 0, [40], True)])
    assert addresses() == before
    assert torch.equal(first, kept), "what a step has given is not the next one's to change"


@pytest.mark.parametrize(
    "wrong",
    [
        Slice([101], 0, [3], True),
        Slice([1], 16, [3], True),
        Slice([1], 256, list(range(17)), True),
        Slice([1], 0, [PAGES], True),
        Slice([1], 0, [-1], True),
    ],
)
def test_a_slice_that_does_not_fit_is_refused_before_anything_is_written(folder: Path, wrong: Slice) -> None:
    """The spare page too is outside of the pool."""
    runner, _ = prepared(folder)
    with pytest.raises(ValueError):
        runner.run(Batch(0, [Slice([1], 0, [5], True), wrong]))
    assert not runner.pool.any()


class Refusing(Replayed):
    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")


@pytest.mark.parametrize(
    ("name", "streams", "said"),
    [
        ("qwen3_moe", Replayed(), "which experts a step computes is decided on the host."),
        (
            "deepseek_v32",
            Replayed(),
            "the shapes of this family's steps depend on how long the sequences are.",
        ),
        ("llama", Refusing(), "the device refused it (operation not permitted when stream is capturing)."),
    ],
)
def test_what_cannot_be_captured_runs_eagerly_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, streams: Replayed, said: str
) -> None:
    (build_deepseek if name.startswith("deepseek") else build)(name, tmp_path)
    runner = runner_on(tmp_path, streams)
    with caplog.at_level(logging.WARNING, "pdctl.engine"):
        runner.prepare()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"Decode steps are not captured as graphs, and cost more of the CPU: {said}"
    slices = prompts(runner, (4,))
    assert run(runner, next_step(slices, run(runner, slices))).isfinite().all()


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_capture_that_is_switched_off_is_none_and_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    on = Tuning.of(Settings.from_env({"PD_DECODE_GRAPHS": value}), max_running=4).graphs
    runner = runner_on(folder, Replayed(), graphs=on)
    with caplog.at_level(logging.WARNING, "pdctl.engine"):
        runner.prepare()
    assert (runner._graphs is not None) is on is (value == "1")
    said = "Decode steps are not captured as graphs, and cost more of the CPU: PD_DECODE_GRAPHS is 0."
    assert [record.getMessage() for record in caplog.records] == [said] * (not on)


def test_a_cpu_has_nothing_to_capture_and_nothing_to_say(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = runner_on(folder)
    runner.prepare()
    assert runner._graphs is None and not caplog.records
    assert runner._whole.shape[0] == PAGES, "and no page that is nobody's"
