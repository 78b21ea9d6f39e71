"""The operator's CTA target through the engine's own path: settings, runner, attention, the Triton kernel."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

import engine.layers.attention as attention
import engine.layers.norm as norm
import engine.runner.graphs as graphs
import engine.runner.planning as planning
from engine.core.settings import BY_NAME, Settings
from engine.core.types import Batch, Slice
from engine.runner import ModelRunner, Tuning
from kernels.ops.paged_decode_attention import kernel
from kernels.ops.rms_norm.kernel import rms_norm
from kernels.ops.rope.kernel import rope
from kernels.ops.splits import SplitPlan, SplitWorkspace
from kernels.streams import SIDE, Trace
from tests.engine.models.tiny import SIZES, Meeting, ThreadComm
from tests.engine.runner.streamed import next_step, prompts, run, runner_on

SMALL = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}
LENGTHS = (1500, 700)  # of a window of 2048: 12 and 6 splits
KNOB = BY_NAME["target_ctas"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    config = LlamaConfig(**{**SIZES, **SMALL, "max_position_embeddings": 2048})
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def runner_of(folder: Path, env: dict[str, str]) -> ModelRunner:
    tuning = Tuning.of(Settings.from_env(env), max_running=2)
    comm = ThreadComm(0, Meeting(1))
    where = {"dtype": "float32", "device": "cpu", "rank": 0, "tp": 1}
    return ModelRunner(folder, comm=comm, page_size=16, pages=150, tuning=tuning, **where)  # type: ignore[arg-type]


def test_every_target_gives_the_engine_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU would take the kernel by itself; here it is put in the reference's place, with its workspace."""
    split = SplitPlan.of(max_batch=2, heads=4, kv_heads=2, dim=8, max_tokens=2048)
    assert split.splits == 16
    found = []
    for target in (int(KNOB.default), int(KNOB.low), 9, 48, 512):
        runner = runner_of(folder, {KNOB.env: str(target)})
        assert runner._planner.target_ctas == target
        planner = dataclasses.replace(runner._planner, workspace=SplitWorkspace(split, "cpu"))
        at, last = 0, []
        for length in LENGTHS:
            pages = list(range(at, at := at + -(-length // 16)))
            prompt = [(7 * i + length) % 101 for i in range(length)]
            runner.run(Batch(0, [Slice(prompt[:-1], 0, pages, False)]))
            last.append(Slice(prompt[-1:], length - 1, pages, True))
        with monkeypatch.context() as patch:
            patch.setattr(planning, "plan_decode", kernel.plan_decode)
            patch.setattr(attention, "paged_decode_attention", kernel.paged_decode_attention)
            patch.setattr(runner, "_planner", planner)
            logits = runner.run(Batch(1, last))
        assert logits is not None and logits.isfinite().all()
        found.append(logits)
    want = runner.run(Batch(1, last))
    assert want is not None and torch.allclose(found[0], want, atol=1e-5), "not what the reference says"
    assert all(torch.equal(logits, found[0]) for logits in found)


@pytest.mark.slow
def test_the_captured_step_of_the_kernels_is_proved_and_gives_what_the_references_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its static memory, its rows of padding, its side stream: as on a GPU but for the graph itself."""
    torch.manual_seed(1)
    window = {"max_position_embeddings": 128, "head_dim": 8}
    Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **SMALL, **window})).save_pretrained(tmp_path)
    plain, trace = runner_on(tmp_path, max_running=4), Trace()
    slices = prompts(plain, (18, 5, 9))
    steps = next_step(slices, run(plain, slices))
    runner = runner_on(tmp_path, trace, max_running=4)
    runner.pool.copy_(plain.pool)
    want = {count: run(plain, steps[:count]) for count in (3, 1)}
    runner._whole[-1:] = float("nan")  # the page that padding writes to is never read
    split = SplitPlan.of(max_batch=4, heads=4, kv_heads=2, dim=8, max_tokens=128)
    planner = dataclasses.replace(runner._planner, workspace=SplitWorkspace(split, "cpu"), target_ctas=3)
    for module, name, function in (
        (runner, "_planner", planner),
        (graphs, "plan_decode", kernel.plan_decode),
        (graphs, "replan_decode", kernel.replan_decode),
        (attention, "paged_decode_attention", kernel.paged_decode_attention),
        (attention, "rope", rope),
        (norm, "rms_norm", rms_norm),
    ):
        monkeypatch.setattr(module, name, function)
    runner.prepare()
    assert runner._graphs is not None and runner._graphs.sizes == (1, 2, 4)
    for count, logits in want.items():
        assert torch.allclose(run(runner, steps[:count]), logits, atol=1e-5)
    assert torch.allclose(runner.pool, plain.pool, atol=1e-5)
    trace.check()
    names = {(node.stream, node.name) for node in trace.nodes}
    assert {(SIDE, "_rotate"), (SIDE, "_norm"), ("main", "_attend"), ("main", "_merge")} <= names
