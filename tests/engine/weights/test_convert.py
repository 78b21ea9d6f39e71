"""GGUF to a model folder: the very weights, the very tokenizer, whole or not at all."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from engine.core.errors import ModelError
from engine.core.types import Slice
from engine.weights import ModelConfig, convert, resolve
from engine.weights.rope import RopeScaling, scaled_frequencies
from tests.engine.models.tiny import MODELS, Ranks
from tests.engine.weights.ggufs import TEMPLATE, vocabulary, write_gguf

ARCHITECTURES = {"llama": 8, "qwen2": 8, "qwen3": 16}  # name -> head_dim


def weights_of(name: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    weights = {k: torch.randn_like(v) * 0.2 for k, v in MODELS[name]().state_dict().items()}
    tied = name == "llama"
    kept = {k: v for k, v in weights.items() if not (tied and k == "lm_head.weight")}
    # The tokenizer of these files has 261 tokens, so the embedding has as many rows.
    return {k: torch.randn(261, 48) if v.shape[0] == 101 else v for k, v in kept.items()}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_weights_are_the_same_and_the_model_runs(tmp_path: Path, name: str) -> None:
    weights = weights_of(name)
    write_gguf(tmp_path / "m.gguf", name, weights, head_dim=ARCHITECTURES[name])
    said = convert(tmp_path / "m.gguf", tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[k], weights[k]) for k in weights)
    assert said["layers"] == 3 and said["kv_heads"] == 3 and said["head_dim"] == ARCHITECTURES[name]
    config = ModelConfig.load(tmp_path / "out")
    assert config.tie_embeddings == (name == "llama")
    assert config.eos == (259,) and config.rms_norm_eps == 1e-6
    runner = Ranks(tmp_path / "out")
    assert runner.runners[0].digest == said["digest"]
    assert runner.run(Slice([1, 2, 3], 0, [0], True)).isfinite().all()


def test_quantised_matrices_become_float32(tmp_path: Path) -> None:
    weights = weights_of("llama")
    weights = {k: torch.randn(v.shape[0], 64) if v.dim() == 2 else v for k, v in weights.items()}
    kind = gguf.GGMLQuantizationType.Q8_0
    write_gguf(tmp_path / "m.gguf", "llama", weights, kind=kind)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    want = gguf.dequantize(gguf.quantize(weights[name].numpy(), kind), kind)
    assert found[name].dtype == torch.float32
    assert torch.equal(found[name], torch.from_numpy(want))


def test_half_precision_stays(tmp_path: Path) -> None:
    weights = weights_of("qwen2")
    write_gguf(tmp_path / "m.gguf", "qwen2", weights, kind=gguf.GGMLQuantizationType.BF16)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    assert found[name].dtype == torch.bfloat16
    assert torch.equal(found[name], weights[name].bfloat16())


def test_shards_when_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By its import path: the package has the function of the same name.
    monkeypatch.setattr(importlib.import_module("engine.weights.convert"), "SHARD_BYTES", 40_000)
    weights = weights_of("llama")
    write_gguf(tmp_path / "m.gguf", "llama", weights)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    found = {k: v for f in files for k, v in load_file(f).items()}
    assert len(files) > 2 and all(torch.equal(found[k], weights[k]) for k in weights)
    assert Ranks(tmp_path / "out").run(Slice([1, 2, 3], 0, [0], True)).isfinite().all()


def test_llama3_rope_comes_back_from_its_divisors(tmp_path: Path) -> None:
    scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    divisors = scaled_frequencies(16, 10000.0, None) / scaled_frequencies(16, 10000.0, scaling)
    write_gguf(tmp_path / "m.gguf", "llama", weights_of("llama"), head_dim=16, rope_divisors=divisors)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    assert ModelConfig.load(tmp_path / "out").rope_scaling == scaling
    write_gguf(
        tmp_path / "odd.gguf", "llama", weights_of("llama"), head_dim=16, rope_divisors=divisors.sqrt()
    )
    with pytest.raises(ModelError, match="rope_freqs"):
        convert(tmp_path / "odd.gguf", tmp_path / "odd")


def tokenizer(tmp_path: Path, pre: str, **metadata: object) -> Tokenizer:
    write_gguf(tmp_path / "m.gguf", "llama", weights_of("llama"), pre=pre, **metadata)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    return Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))


def test_tokenizer_splits_as_the_file_says(tmp_path: Path) -> None:
    tokens, _ = vocabulary()
    for pre, want in (
        ("smollm", ["1", "2", "3", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("llama-bpe", ["123", "4"]),
        ("gpt-2", ["123", "4"]),
    ):
        folder = tmp_path / pre
        folder.mkdir()
        assert tokenizer(folder, pre).encode("1234").tokens == want, pre
    made = tokenizer(tmp_path, "smollm")
    text = "ab 12\té漢🙂<|end|>x"
    encoded = made.encode(text)
    assert tokens.index("<|end|>") in encoded.ids and "ab" in encoded.tokens
    assert made.decode(encoded.ids, skip_special_tokens=False) == text
    assert made.decode(encoded.ids) == text.replace("<|end|>", "")


def test_begin_token_only_when_the_file_asks_for_it(tmp_path: Path) -> None:
    tokens, _ = vocabulary()
    made = tokenizer(tmp_path, "llama-bpe", tokenizer__ggml__add_bos_token=True)
    assert made.encode("ab").ids == [tokens.index("<|begin|>"), tokens.index("ab")]
    assert made.encode("ab", add_special_tokens=False).ids == [tokens.index("ab")]


def test_chat_template_and_names_of_special_tokens(tmp_path: Path) -> None:
    tokenizer(tmp_path, "smollm")
    document = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert document["chat_template"] == TEMPLATE
    assert (document["eos_token"], document["bos_token"]) == ("<|end|>", "<|begin|>")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"architecture": "mamba"}, "mamba is not supported .supported: llama, qwen2, qwen3"),
        ({"architecture": "llama", "pre": "deepseek-llm"}, "deepseek-llm is not supported"),
        ({"architecture": "llama", "skip": ("token_embd.weight",)}, "no tensor token_embd.weight"),
    ],
)
def test_unsupported_files_are_one_sentence_and_leave_nothing(
    tmp_path: Path, options: dict[str, str], text: str
) -> None:
    write_gguf(tmp_path / "m.gguf", weights=weights_of("llama"), **options)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=text):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_damaged_files_are_one_sentence(tmp_path: Path) -> None:
    good = tmp_path / "m.gguf"
    write_gguf(good, "llama", weights_of("llama"))
    content = good.read_bytes()
    for name, data, text in (
        ("short.gguf", content[: len(content) // 2], "damaged or truncated"),
        ("head.gguf", content[:200], "damaged or truncated"),
        ("almost.gguf", content[:-1], "damaged or truncated"),
        ("bytes.gguf", content[:-4096] + b"\xff" * 4096, "not finite numbers"),
        ("version.gguf", b"GGUF\x63\0\0\0" + content[8:], "damaged or truncated"),
        ("text.gguf", b"hello, I am no model", "not a GGUF file"),
        ("empty.gguf", b"", "not a GGUF file"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ModelError, match=text) as raised:
            convert(path, tmp_path / "out")
        assert str(path) in raised.value.message and "\n" not in raised.value.message
    with pytest.raises(ModelError, match="does not exist"):
        convert(tmp_path / "none.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_heads_that_do_not_fit_the_rows_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, "llama", weights_of("llama"))
    key = b"llama.attention.head_count\x04\0\0\0"
    content = path.read_bytes()
    at = content.index(key) + len(key)
    path.write_bytes(content[:at] + (138).to_bytes(4, "little") + content[at + 4 :])
    with pytest.raises(ModelError, match="damaged") as raised:
        convert(path, tmp_path / "out")
    assert str(path) in raised.value.message and not (tmp_path / "out").exists()


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "llama", weights_of("llama"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(ModelError, match="already exists"):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine"]


def test_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", "llama", weights_of("llama"))
    folder = resolve(tmp_path / "m.gguf")
    assert folder.is_relative_to(tmp_path / "cache") and (folder / "config.json").exists()
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert resolve(tmp_path / "m.gguf") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    assert resolve(folder) == folder
    # Another file under the same name is another model.
    write_gguf(tmp_path / "m.gguf", "llama", weights_of("llama"), tokenizer__ggml__add_bos_token=True)
    assert resolve(tmp_path / "m.gguf") != folder
    with pytest.raises(ModelError, match="has no config"):
        resolve(tmp_path)
    with pytest.raises(ModelError, match="does not exist"):
        resolve(tmp_path / "nothing")
