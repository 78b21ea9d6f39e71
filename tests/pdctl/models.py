"""Model folders that pdctl takes for whole; no engine could make anything of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

CONFIG = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 9, "num_key_value_heads": 3}


def model_folder(folder: Path) -> Path:
    """`folder`, made, with a model of three key/value heads."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return folder


def model_script(path: str) -> str:
    """For a shell on a host: the same there."""
    return (
        f"mkdir -p {path} && cd {path} && echo '{json.dumps(CONFIG)}' >config.json"
        " && echo '{}' >tokenizer.json && printf '\\2\\0\\0\\0\\0\\0\\0\\0{}' >model.safetensors"
    )
