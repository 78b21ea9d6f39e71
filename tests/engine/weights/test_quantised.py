"""Weights of 8 and 4 bits: what is served is the model with the values that they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.core.errors import ModelError
from engine.core.types import Slice
from engine.weights import Checkpoint
from tests.engine.models.deepseek import DEEPSEEKS, build_deepseek, one_thread, reference  # noqa: F401
from tests.engine.models.tiny import Ranks

Tensors = dict[str, torch.Tensor]
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
BLOCK = 16
TOKENS = list(range(3, 40))
PAGES = list(range(20))


def blocks_of_fp8(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    """As DeepSeek's checkpoints are: a scale for each block of rows and columns."""
    scale = torch.rand([-(-n // BLOCK) for n in weight.shape]) * 0.01 + 0.001
    wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: weight.shape[0], : weight.shape[1]]
    stored = (weight / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {name: stored, f"{name}_scale_inv": scale}, stored.float() * wide


def rows_of_fp8(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    scale = weight.abs().amax(1, keepdim=True) / 448
    stored = (weight / scale).to(torch.float8_e4m3fn)
    return {name: stored, f"{name}_scale": scale}, stored.float() * scale


def all_in_fp8(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    scale = (weight.abs().max() / 448).reshape(1)
    stored = (weight / scale).to(torch.float8_e4m3fn)
    return {name: stored, f"{name}_scale": scale}, stored.float() * scale


def four_bits(weight: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed values of `weight` under [rows, groups] scales, and what they stand for."""
    wide = scale.float().repeat_interleave(weight.shape[1] // scale.shape[1], 1)
    magnitude = ((weight / wide).abs()[..., None] - FP4).abs().argmin(-1)
    codes = (magnitude + 8 * (weight < 0)).to(torch.uint8)
    value = FP4[magnitude] * torch.where(weight < 0, -1.0, 1.0) * wide
    return codes[:, ::2] | codes[:, 1::2] << 4, value


def nvfp4(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    second = torch.tensor(0.25)
    groups = weight.view(weight.shape[0], -1, BLOCK).abs().amax(-1) / 6 / second
    scale = groups.clamp(min=0.01).to(torch.float8_e4m3fn)
    stored, value = four_bits(weight, scale.float() * second)
    return {name: stored, f"{name}_scale": scale, f"{name}_scale_2": second}, value


def mxfp4(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    """As V4's experts are: a power of two for a group."""
    groups = (weight.view(weight.shape[0], -1, BLOCK).abs().amax(-1) / 6).log2().ceil()
    scale = torch.exp2(groups).to(torch.float8_e8m0fnu)
    stored, value = four_bits(weight, scale.float())
    return {name: stored.view(torch.int8), f"{name.removesuffix('weight')}scale": scale}, value


FORMS: dict[str, Callable[[str, torch.Tensor], tuple[Tensors, torch.Tensor]]] = {
    f.__name__: f for f in (blocks_of_fp8, rows_of_fp8, all_in_fp8, nvfp4, mxfp4)
}


def is_linear(name: str, weight: torch.Tensor) -> bool:
    return weight.dim() == 2 and weight.shape[1] % BLOCK == 0 and any(
        part in name for part in ("_proj.weight", "wq_b", "w1.", "w2.", "w3.", "wo_b")
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(80, BLOCK), (17, 9), (48, 2 * BLOCK), (BLOCK, 40), (5, 3)])
@pytest.mark.parametrize("form", ["blocks_of_fp8", "rows_of_fp8"])
def test_a_part_has_the_scales_of_the_whole(tmp_path: Path, form: str, shape: tuple[int, int]) -> None:
    """Also of a weight that is one block wide, and a part of it with fewer rows than there are blocks."""
    stored, value = FORMS[form]("w.weight", torch.randn(shape))
    save_file(stored, tmp_path / "model.safetensors")
    checkpoint = Checkpoint(tmp_path, (BLOCK, BLOCK))
    for ranks in (1, 2, 3):
        for rank in range(ranks):
            start, stop = (shape[0] * r // ranks for r in (rank, rank + 1))
            assert torch.equal(checkpoint.rows("w.weight", shape, start, stop), value[start:stop])
            start, stop = (shape[1] * r // ranks for r in (rank, rank + 1))
            assert torch.equal(checkpoint.columns("w.weight", shape, start, stop), value[:, start:stop])


def test_a_scale_of_plain_bytes_is_an_exponent(tmp_path: Path) -> None:
    stored, value = mxfp4("w.weight", torch.randn(6, 4 * BLOCK))
    save_file({**stored, "w.scale": stored["w.scale"].view(torch.uint8)}, tmp_path / "model.safetensors")
    assert torch.equal(Checkpoint(tmp_path).whole("w.weight", (6, 4 * BLOCK)), value)


@pytest.mark.parametrize(("model", "form"), [("deepseek_v32", "blocks_of_fp8"), ("deepseek_v4", "mxfp4")])
def test_a_quantised_model_is_the_model_of_its_values(tmp_path: Path, model: str, form: str) -> None:
    """transformers' logits from the values, and this engine's from the bits; three ranks cut blocks."""
    config = {"hidden_size": 48, "moe_intermediate_size": 32, "q_lora_rank": 32}
    build_deepseek(model, tmp_path, **config)
    path = tmp_path / "model.safetensors"
    stored, values = {}, {}
    for name, weight in load_file(path).items():
        few, value = FORMS[form](name, weight) if is_linear(name, weight) else ({name: weight}, weight)
        stored |= few
        values[name] = value
    assert len(stored) > len(values) + 50
    save_file(values, path, {"format": "pt"})
    whole = DEEPSEEKS[model](**config).from_pretrained(tmp_path)
    want = reference(whole.eval(), TOKENS)
    save_file(stored, path, {"format": "pt"})
    document = json.loads((tmp_path / "config.json").read_text())
    own = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}
    (tmp_path / "config.json").write_text(json.dumps(document | {"quantization_config": own}))
    got = Ranks(tmp_path, 3, page_size=16).run(Slice(TOKENS, 0, PAGES, True))
    assert torch.allclose(got[0], want[-1], atol=2e-4)


@pytest.mark.parametrize("form", FORMS)
def test_every_part_of_a_weight_is_that_part_of_its_values(tmp_path: Path, form: str) -> None:
    weight = torch.randn(37, 48, generator=torch.Generator().manual_seed(2))
    stored, value = FORMS[form]("a.weight", weight)
    save_file(stored, tmp_path / "model.safetensors")
    checkpoint = Checkpoint(tmp_path, (BLOCK, BLOCK))
    assert torch.equal(checkpoint.whole("a.weight", (37, 48)), value)
    assert torch.equal(checkpoint.rows("a.weight", (37, 48), 13, 30), value[13:30])
    assert torch.equal(checkpoint.columns("a.weight", (37, 48), 7, 41), value[:, 7:41])


@pytest.mark.parametrize("form", ["blocks_of_fp8", "nvfp4"])
def test_scales_that_do_not_fit_are_one_sentence(tmp_path: Path, form: str) -> None:
    stored, _ = FORMS[form]("a.weight", torch.randn(32, 48))
    scale = next(name for name in stored if name.endswith(("_scale", "_scale_inv")))
    stored[scale] = stored[scale][:, :1].contiguous()[:1].repeat(1, 5 if form == "nvfp4" else 1).repeat(2, 1)
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=f"{scale} does not fit a.weight"):
        Checkpoint(tmp_path, (8, 8)).whole("a.weight", (32, 48))


def test_few_bits_without_scales_are_no_weights(tmp_path: Path) -> None:
    save_file({"a.weight": torch.zeros(4, 4, dtype=torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="weight is float8_e4m3fn"):
        Checkpoint(tmp_path).whole("a.weight", (4, 4))
