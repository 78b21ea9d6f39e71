"""What a model is, as one short string that two hosts can compare."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from engine.core.errors import ModelError

CACHE_NAME = ".digest.json"


def model_digest(folder: Path) -> str:
    """16 hex digits over the contents of config.json, tokenizer.json and every *.safetensors file.

    Names and bytes count, times do not: a copy has the same digest. The result is kept in a small file
    beside the weights and believed while sizes and modification times stay; a folder that cannot be
    written is hashed every time. ModelError when the folder holds no weights.
    """
    files = [p for p in (folder / "config.json", folder / "tokenizer.json") if p.exists()]
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise ModelError("weights_missing", f"{folder} has no *.safetensors file.", "Fetch the model again.")
    files += weights
    stamp: list[list[str | int]] = [[p.name, p.stat().st_size, p.stat().st_mtime_ns] for p in files]
    cache = folder / CACHE_NAME
    kept = _kept(cache, stamp)
    if kept:
        return kept
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    digest = whole.hexdigest()[:16]
    _keep(cache, stamp, digest)
    return digest


def _kept(cache: Path, stamp: list[list[str | int]]) -> str | None:
    try:
        document = json.loads(cache.read_text())
    except (OSError, ValueError):
        return None  # no cache, or not ours: hash again
    if not isinstance(document, dict) or document.get("files") != stamp:
        return None
    return str(document.get("digest"))


def _keep(cache: Path, stamp: list[list[str | int]], digest: str) -> None:
    try:
        handle, name = tempfile.mkstemp(prefix=CACHE_NAME, dir=cache.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"digest": digest, "files": stamp}, file)
        os.replace(name, cache)
    except OSError:
        pass  # a read-only model folder is hashed every time
