"""--model names a folder or a GGUF file; everything past here works on a folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from engine.core.errors import ModelError
from engine.weights.convert import convert


def resolve(path: Path) -> Path:
    """The model folder for `path`; a GGUF file is converted once into the user's cache.

    The cache is keyed by the file's path, size and modification time. ModelError when there is neither.
    """
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ModelError(
                "model_file_missing",
                f"{path} has no config.json, so it is not a model folder.",
                "Point --model at a Hugging Face model folder or at a GGUF file.",
            )
        return path
    if not path.exists():
        raise ModelError("model_missing", f"{path} does not exist.", "Check --model.")
    stat = path.stat()
    key = f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()
    folder = cache_folder() / f"{path.stem}-{hashlib.sha256(key).hexdigest()[:12]}"
    if not (folder / "config.json").exists():
        convert(path, folder)
    return folder


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pdctl" / "models"
