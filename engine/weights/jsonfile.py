"""JSON files of a model folder, read with sentences instead of tracebacks and written reproducibly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.core.errors import ModelError


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; ModelError when it is missing, unreadable or not a JSON object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            "model_file_missing",
            f"{path} does not exist.",
            f"Point --model at a folder that has {path.name}, or at a GGUF file.",
        ) from None
    except OSError as error:
        raise ModelError("model_file_unreadable", f"{path} cannot be read: {error.strerror}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(
            "model_file_damaged", f"{path} is not JSON ({error}).", "Fetch or convert the model again."
        ) from None
    if not isinstance(document, dict):
        raise ModelError(
            "model_file_damaged", f"{path} holds no JSON object.", "Fetch or convert the model again."
        )
    return document


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
