"""A GGUF file becomes a Hugging Face folder: model*.safetensors, config, tokenizer and chat template."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from engine.core.errors import ModelError
from engine.weights.digest import model_digest
from engine.weights.gguf_config import generation_config, model_config, tokenizer_config
from engine.weights.gguf_file import GgufFile
from engine.weights.gguf_tensors import Source, sources
from engine.weights.gguf_tokenizer import build_tokenizer
from engine.weights.jsonfile import write_json

SHARD_BYTES = 2 << 30  # what is held in memory at a time


def convert(gguf: Path, out: Path) -> dict[str, Any]:
    """Write `out` whole or not at all and say what it holds.

    Quantised tensors become float32 without loss, F16 and BF16 stay. ModelError when the file is not
    one that can be converted exactly, or when `out` exists.
    """
    if out.exists():
        raise ModelError("model_exists", f"{out} already exists.", "Remove it or choose another folder.")
    file = GgufFile(gguf)
    config = model_config(file)
    tokenizer = build_tokenizer(file)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            _write_weights(
                temporary, sources(file, config["num_attention_heads"], config["num_key_value_heads"])
            )
            write_json(temporary / "config.json", config)
            write_json(temporary / "tokenizer_config.json", tokenizer_config(file))
            write_json(temporary / "generation_config.json", generation_config(file))
            tokenizer.save(str(temporary / "tokenizer.json"))
            digest = model_digest(temporary)
            _readable(temporary)
            _publish(temporary, out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise ModelError(
            "convert_failed", f"{out} cannot be written: {error.strerror}.", "Choose another folder."
        ) from None
    return {
        "model": str(out),
        "digest": digest,
        "architecture": config["architectures"][0],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "vocab": config["vocab_size"],
    }


def _readable(folder: Path) -> None:
    """As if made by hand: temporary folders and safetensors files come readable by their owner alone."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)


def _publish(temporary: Path, out: Path) -> None:
    """Two conversions of one file may race: the first rename wins, and both folders hold the same."""
    try:
        os.rename(temporary, out)
    except OSError:
        if not (out / "config.json").exists():
            raise


def _write_weights(folder: Path, tensors: list[Source]) -> None:
    shards = _shards(tensors)
    if len(shards) == 1:
        save_file({s.name: s.read() for s in tensors}, folder / "model.safetensors", {"format": "pt"})
        return
    where: dict[str, str] = {}
    for index, shard in enumerate(shards, 1):
        name = f"model-{index:05d}-of-{len(shards):05d}.safetensors"
        save_file({s.name: s.read() for s in shard}, folder / name, {"format": "pt"})
        where.update({s.name: name for s in shard})
    total = sum(_bytes(s) for s in tensors)
    write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where}
    )


def _shards(tensors: list[Source]) -> list[list[Source]]:
    shards: list[list[Source]] = [[]]
    room = SHARD_BYTES
    for source in tensors:
        if shards[-1] and _bytes(source) > room:
            shards.append([])
            room = SHARD_BYTES
        shards[-1].append(source)
        room -= _bytes(source)
    return shards


def _bytes(source: Source) -> int:
    size = source.dtype.itemsize
    for n in source.shape:
        size *= n
    return size


def run_convert(argv: list[str]) -> int:
    """`python -m engine convert --gguf FILE --out DIR`: one JSON line on stdout."""
    parser = argparse.ArgumentParser(prog="python -m engine convert", allow_abbrev=False)
    parser.add_argument("--gguf", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args(argv)
    print(json.dumps(convert(args.gguf, args.out)))
    return 0
