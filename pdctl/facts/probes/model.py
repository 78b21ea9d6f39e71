"""Host tool: a model as it lies there, by its names, lengths and headers; no weight is read."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_HEADER_LIMIT = 100_000_000
_CONFIG = (
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "hidden_size",
    "head_dim",
    "kv_lora_rank",
    "o_groups",
)


def probe_model(path: str) -> dict[str, Any]:
    """`kind`: absent, folder or file; `wrong`: the first thing that keeps it from being loaded, "" for none;
    `config`: of a folder, what tells how it can be shared out."""
    if not os.path.exists(path):
        return {"kind": "absent", "wrong": "", "config": {}}
    if not os.path.isdir(path):
        with open(path, "rb") as file:
            wrong = "" if file.read(4) == b"GGUF" else "it is neither a folder nor a GGUF file"
        return {"kind": "file", "wrong": wrong, "config": {}}
    config, wrong = _model_json(path, "config.json")
    if not wrong and not os.path.isfile(os.path.join(path, "tokenizer.json")):
        wrong = "it has no tokenizer.json"
    wrong = wrong or _model_weights(path)
    return {"kind": "folder", "wrong": wrong, "config": {k: config[k] for k in _CONFIG if k in config}}


def _model_json(folder: str, name: str) -> tuple[dict[str, Any], str]:
    if not os.path.isfile(os.path.join(folder, name)):
        return {}, f"it has no {name}"
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found = json.load(file)
    except ValueError:
        return {}, f"{name} is not JSON"
    return (found, "") if isinstance(found, dict) else ({}, f"{name} holds no JSON object")


def _model_weights(folder: str) -> str:
    if not os.path.exists(os.path.join(folder, _INDEX)):
        return _model_shard(folder, _WEIGHTS)
    index, wrong = _model_json(folder, _INDEX)
    where = index.get("weight_map")
    if not wrong and not (isinstance(where, dict) and where):
        wrong = f"{_INDEX} has no weight_map"
    shards = [] if wrong or not isinstance(where, dict) else sorted({str(name) for name in where.values()})
    return wrong or next((said for name in shards if (said := _model_shard(folder, name))), "")


def _model_shard(folder: str, name: str) -> str:
    """Whether it is as long as its header says."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return f"it has no {name}"
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 0 < length <= min(_HEADER_LIMIT, size):
            return f"{name} ({size} bytes) is truncated or no safetensors file"
        try:
            rows = json.loads(file.read(length))
            ends = [row["data_offsets"][1] for key, row in rows.items() if key != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return f"the header of {name} is damaged or truncated"
    whole = 8 + length + max(ends, default=0)
    return "" if size == whole else f"{name} has {size} bytes and its header promises {whole}"
