"""The decode step of each family on streams: what the trace proves of it, and that it sees planted faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core.types import Batch, Slice
from engine.layers.mlp import Mlp
from engine.layers.norm import RmsNorm
from engine.runner import ModelRunner
from engine.runner.graphs import DecodeGraphs
from kernels.streams import MAIN, SIDE, Trace, TraceFault
from tests.engine.models.deepseek import build_deepseek, one_thread  # noqa: F401
from tests.engine.models.tiny import build
from tests.engine.runner.streamed import next_step, prompts, run, runner_on

# What each family computes beside its main work.
BESIDE = {
    "llama": set(),
    "qwen3": {"keys"},
    "qwen3_moe": {"keys"},
    "deepseek_v32": {"indexer", "shared expert"},
    "deepseek_v4": {"entries", "shared expert"},
}
Folders = Callable[[str], Path]
Plant = Callable[[pytest.MonkeyPatch, Trace], object]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            (build_deepseek if name.startswith("deepseek") else build)(name, made[name])
        return made[name]

    return get


def decoding(folder: Path, trace: Trace, count: int = 2) -> tuple[ModelRunner, list[Slice], torch.Tensor]:
    """A runner on the trace whose sequences have been prefilled elsewhere, their next step, and its logits in
    order."""
    plain = runner_on(folder)
    first = prompts(plain, (7, 12)[:count])
    step = next_step(first, run(plain, first))
    traced = runner_on(folder, trace)
    traced.pool.copy_(plain.pool)
    return traced, step, run(plain, step)


@pytest.mark.parametrize("name", BESIDE)
def test_a_decode_step_has_no_race_and_the_bits_that_it_has_in_order(folder_of: Folders, name: str) -> None:
    trace = Trace()
    runner, step, want = decoding(folder_of(name), trace)
    assert torch.equal(run(runner, step), want)
    trace.check()
    assert {node.within.name for node in trace.nodes if node.stream == SIDE and node.within} == BESIDE[name]
    assert {node.stream for node in trace.nodes} == ({MAIN, SIDE} if BESIDE[name] else {MAIN})


def test_a_prompts_step_has_no_race(folder_of: Folders) -> None:
    trace = Trace()
    runner = runner_on(folder_of("qwen3"), trace)
    run(runner, prompts(runner, (9, 1, 5)))
    trace.check()


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v32"])
def test_without_overlap_the_bits_are_the_same_on_one_stream(folder_of: Folders, name: str) -> None:
    trace = Trace(overlap=False)
    runner, step, want = decoding(folder_of(name), trace)
    assert torch.equal(run(runner, step), want)
    assert {node.stream for node in trace.nodes} == {MAIN}


def captured(folder: Path, trace: Trace) -> None:
    """Capture the step of two sequences, as the graph of its size, and hold the trace to it."""
    runner, step, want = decoding(folder, trace)
    graphs = DecodeGraphs(runner._model, runner._whole, runner._planner, trace, most=2)  # type: ignore[arg-type]
    with torch.inference_mode():
        size = graphs.sizes[-1]
        graphs.fill(step, size)
        trace.capture(lambda: graphs.compute(size))
        trace.check()
    assert torch.equal(graphs._logits[:2], want)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_captured_step_allocates_nothing_that_stays_and_waits_for_no_value(
    folder_of: Folders, name: str
) -> None:
    captured(folder_of(name), Trace())


def no_join(patch: pytest.MonkeyPatch, trace: Trace) -> None:
    patch.setattr(trace, "join", lambda *streams: None)


def no_fork(patch: pytest.MonkeyPatch, trace: Trace) -> None:
    patch.setattr(trace, "fork", lambda *streams: None)


def dropped_early(patch: pytest.MonkeyPatch, trace: Trace) -> None:
    """The side work reads memory of MAIN that is dropped before the join."""
    launch = trace.launch

    def faulty(stream: str, name: str, work: Callable[[], Any], reads: Any = (), writes: Any = ()) -> Any:
        if stream != SIDE:
            return launch(stream, name, work, reads, writes)
        lent = torch.ones(64)
        return launch(stream, name, lambda: (lent.sum(), work())[1], [*reads, lent], writes)

    patch.setattr(trace, "launch", faulty)


def kept(patch: pytest.MonkeyPatch, trace: Trace) -> None:
    """Scratch that a layer makes when it first needs it."""
    norm, scratch = RmsNorm.__call__, []

    def faulty(self: RmsNorm, x: torch.Tensor) -> torch.Tensor:
        if not scratch:
            scratch.append(torch.empty_like(x))
        return norm(self, scratch[0].copy_(x))

    patch.setattr(RmsNorm, "__call__", faulty)


def looked_at(patch: pytest.MonkeyPatch, trace: Trace) -> None:
    mlp = Mlp.__call__
    patch.setattr(Mlp, "__call__", lambda self, x: mlp(self, x) * (2.0 if float(x[0, 0]) > 1e9 else 1.0))


@pytest.mark.parametrize(
    ("name", "plant", "said"),
    [
        ("qwen3", no_join, "the capture ends with work of stream side that is not joined"),
        ("qwen3", no_fork, "keys on stream side, which was not forked from the captured main"),
        (
            "qwen3",
            dropped_early,
            r"memory of ones \(main\), that side uses, is given to \S+ \(main\), unordered",
        ),
        ("llama", kept, "memory of empty_like was allocated inside the capture and is kept"),
        ("llama", looked_at, "_local_scalar_dense cannot be captured: its value is read on the host"),
    ],
)
def test_a_fault_planted_in_a_captured_step_is_seen(
    folder_of: Folders, monkeypatch: pytest.MonkeyPatch, name: str, plant: Plant, said: str
) -> None:
    trace = Trace()
    real = trace.capture

    def planted(work: Callable[[], object]) -> Callable[[], object]:
        with monkeypatch.context() as patch:
            plant(patch, trace)
            return real(work)

    monkeypatch.setattr(trace, "capture", planted)
    with pytest.raises(TraceFault, match=said):
        captured(folder_of(name), trace)


@pytest.mark.parametrize(
    ("name", "plant", "said"),
    [
        (
            "deepseek_v32",
            no_join,
            r"of step \(main\) uses is overwritten by \S+ of indexer \(side\), unordered",
        ),
        (
            "deepseek_v4",
            no_join,
            r"of step \(main\) uses is overwritten by \S+ of entries \(side\), unordered",
        ),
        ("deepseek_v32", dropped_early, r"memory of ones \(main\), that side uses, is given to"),
    ],
)
def test_a_fault_planted_in_a_step_of_deepseek_is_seen(
    folder_of: Folders, monkeypatch: pytest.MonkeyPatch, name: str, plant: Plant, said: str
) -> None:
    trace = Trace()
    runner, step, _ = decoding(folder_of(name), trace, count=1)
    plant(monkeypatch, trace)
    runner.run(Batch(0, step))
    with pytest.raises(TraceFault, match=said):
        trace.check()
