"""A model is known by its names, lengths and headers, without a weight being read."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl.facts.model import parse
from pdctl.facts.probes.model import probe_model
from tests.pdctl.models import model_folder

WEIGHTS = "model.safetensors"


def cut(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, 12)


def no_weights_at_all(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"")


def an_index_with_a_shard_that_is_not_there(folder: Path) -> None:
    shards = {"weight_map": {"a": WEIGHTS, "b": "second.safetensors"}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(shards))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "it has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "it has no tokenizer.json"),
        (lambda folder: (folder / WEIGHTS).unlink(), f"it has no {WEIGHTS}"),
        (cut, f"{WEIGHTS} (12 bytes) is truncated or no safetensors file"),
        (no_weights_at_all, f"{WEIGHTS} (0 bytes) is truncated or no safetensors file"),
        (an_index_with_a_shard_that_is_not_there, "it has no second.safetensors"),
    ],
)
def test_what_keeps_a_model_from_being_loaded_is_named(
    damage: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "model")
    assert parse(probe_model(str(folder))).wrong == ""
    damage(folder)
    assert parse(probe_model(str(folder))).wrong == said


def test_ranks_are_bounded_by_key_value_heads(tmp_path: Path) -> None:
    model = parse(probe_model(str(model_folder(tmp_path / "model"))))
    assert (model.parts, model.serves(3), model.serves(4)) == (3, True, False)
    (tmp_path / "model" / "config.json").write_text('{"num_attention_heads": 9}')
    assert parse(probe_model(str(tmp_path / "model"))).parts == 9, "as the engine counts them then"


@pytest.mark.parametrize(
    ("config", "parts", "parts_are"),
    [
        ({"num_key_value_heads": 8, "kv_lora_rank": 512}, 8, "attention heads"),
        ({"num_key_value_heads": 1, "o_groups": 4}, 4, "groups of output heads"),
    ],
)
def test_ranks_that_share_one_entry_a_token_are_bounded_by_what_reads_it(
    config: dict[str, int], parts: int, parts_are: str, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 8, **config}))
    model = parse(probe_model(str(folder)))
    assert (model.parts, model.parts_are, model.kv_values) == (parts, parts_are, None)


def test_a_path_may_be_a_gguf_file_an_empty_folder_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    (tmp_path / "notes").write_text("no model")
    (tmp_path / "empty").mkdir()
    found = {name: parse(probe_model(str(tmp_path / name))) for name in ("m.gguf", "notes", "empty", "gone")}
    assert {name: (model.there, model.wrong) for name, model in found.items()} == {
        "m.gguf": (True, ""),
        "notes": (True, "it is neither a folder nor a GGUF file"),
        "empty": (True, "it has no config.json"),
        "gone": (False, ""),
    }


def test_a_real_model_is_whole() -> None:
    folder = Path.home() / ".cache/pdctl/models/smollm2-135m"
    if not folder.exists():
        pytest.skip("the model is not cached")
    model = parse(probe_model(str(folder)))
    assert (model.there, model.wrong, model.parts) == (True, "", 3)
