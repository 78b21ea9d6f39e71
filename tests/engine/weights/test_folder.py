"""A model folder: what is wrong with it is one sentence that names the file; its digest is its content."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.core.errors import ModelError
from engine.weights import Checkpoint, ModelConfig, model_digest
from tests.engine.models.tiny import Ranks, build


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine")
    build("llama", path)
    return path


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "model"))


def change_config(folder: Path, **values: Any) -> None:
    """A value of None removes its key."""
    path = folder / "config.json"
    document = json.loads(path.read_text()) | values
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported .supported: Llama"),
        ({"architectures": None}, "no architectures"),
        ({"num_key_value_heads": 4}, "6 attention heads are not a multiple of 4"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"sliding_window": 16}, "sliding-window"),
        ({"quantization_config": {"quant_method": "awq"}}, "quant_method 'awq' is not supported"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            "rope scaling dynamic is not supported",
        ),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
        ({"eos_token_id": "end"}, "eos_token_id is 'end'"),
        ({"rope_parameters": "fast"}, "rope_parameters is 'fast'"),
    ],
)
def test_config(folder: Path, values: dict[str, Any], text: str) -> None:
    (folder / "generation_config.json").unlink(missing_ok=True)
    change_config(folder, **values)
    with pytest.raises(ModelError, match=text) as raised:
        ModelConfig.load(folder)
    assert str(folder / "config.json") in raised.value.message


def test_config_that_is_no_json(folder: Path) -> None:
    for text in ("{", "[1]", "\0\0"):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelError, match=r"config\.json"):
            ModelConfig.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="does not exist"):
        ModelConfig.load(folder)


def test_old_style_rope_keys_and_several_ends(folder: Path) -> None:
    scaling = {"type": "linear", "factor": 4.0}
    change_config(folder, rope_parameters=None, rope_theta=5e5, rope_scaling=scaling)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 9]}')
    config = ModelConfig.load(folder)
    assert config.rope_theta == 5e5 and config.eos == (5, 9)
    assert config.rope_scaling is not None and config.rope_scaling.factor == 4.0


@pytest.mark.parametrize("keep", [0.5, 0.001])
def test_truncated_weights(folder: Path, keep: float) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, int(path.stat().st_size * keep))
    with pytest.raises(ModelError, match="damaged or truncated") as raised:
        Ranks(folder)
    assert str(path) in raised.value.message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.1.self_attn.v_proj.weight",
        "model.layers.2.mlp.down_proj.weight",
    ],
)
def test_values_that_are_no_numbers(folder: Path, name: str, value: float) -> None:
    change_weights(folder, lambda w: w[name].view(-1)[-1:].fill_(value))
    with pytest.raises(ModelError, match=f"{name} has values that are not finite") as raised:
        Ranks(folder)
    assert str(folder / "model.safetensors") in raised.value.message


def test_random_bytes_in_the_weights(folder: Path) -> None:
    """The header is whole, so the file opens."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-4096:] = random.Random(5).randbytes(4096)
    path.write_bytes(data)
    with pytest.raises(ModelError, match="not finite") as raised:
        Ranks(folder)
    assert str(path) in raised.value.message


def test_finite_values_that_overflow_are_found_by_a_step(folder: Path) -> None:
    runner = Ranks(folder).runners[0]
    runner.prove()
    change_weights(folder, lambda w: w["model.layers.1.mlp.down_proj.weight"].fill_(3e38))
    with pytest.raises(ModelError, match="not finite") as raised:
        Ranks(folder).runners[0].prove()
    assert str(folder) in raised.value.message


def test_weights_of_another_kind(folder: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    for kind in (torch.int8, torch.float8_e4m3fn):
        change_weights(folder, lambda w, k=kind: w.update({name: w[name].to(k)}))
        with pytest.raises(ModelError, match=f"{name} is {str(kind)[6:]}"):
            Ranks(folder)


def test_missing_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for use in (Ranks, model_digest):
        with pytest.raises(ModelError, match="safetensors"):
            use(folder)


def test_missing_tensor_and_wrong_shape(folder: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    change_weights(folder, lambda w: w.update({name: w[name][:-1].contiguous()}))
    with pytest.raises(ModelError, match=r"shape \[69, 48\].*\[70, 48\]"):
        Ranks(folder)
    change_weights(folder, lambda w: w.pop(name))
    with pytest.raises(ModelError, match=f"no tensor {name}"):
        Ranks(folder)


def test_index_names_a_file_that_is_not_there(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}')
    with pytest.raises(ModelError, match="00001-of-00002"):
        Checkpoint(folder)
    index.write_text("{}")
    with pytest.raises(ModelError, match="no weight_map"):
        Checkpoint(folder)


def test_parts_of_a_tensor(folder: Path) -> None:
    checkpoint = Checkpoint(folder)
    name, shape = "model.layers.0.mlp.up_proj.weight", (70, 48)
    whole = checkpoint.whole(name, shape)
    assert torch.equal(checkpoint.rows(name, shape, 3, 9), whole[3:9])
    assert torch.equal(checkpoint.columns(name, shape, 3, 9), whole[:, 3:9])


def test_digest_is_the_content(folder: Path, tmp_path: Path) -> None:
    first = model_digest(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    (copy / ".digest.json").unlink()
    (copy / "README.md").write_text("not part of the model")
    os.utime(copy / "config.json")
    assert model_digest(copy) == first
    change_weights(copy, lambda w: w["model.norm.weight"].add_(1))
    changed = model_digest(copy)
    assert changed != first
    change_config(copy, rope_theta=77.0)
    assert model_digest(copy) not in (first, changed)


def test_digest_is_kept_but_never_believed_blindly(folder: Path) -> None:
    first = model_digest(folder)
    cache = folder / ".digest.json"
    document = json.loads(cache.read_text())
    cache.write_text(json.dumps(document | {"digest": "0" * 16}))
    assert model_digest(folder) == "0" * 16  # the file is what is read
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert model_digest(folder) == first  # but not for other files
    for damaged in ("", "[]", '{"files": 3}'):
        cache.write_text(damaged)
        assert model_digest(folder) == first
