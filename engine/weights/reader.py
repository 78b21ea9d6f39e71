"""Values of a config.json, each checked as it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.core.errors import ModelError


class ConfigReader:
    """Every method is a ModelError naming the file and the key for a value that is missing or wrong."""

    def __init__(self, document: dict[str, Any], path: Path) -> None:
        self.document = document
        self.path = path

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive whole number."""
        value = self.document.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelError(
                "config_key_missing", f"{self.path} has no {key}.", "Fetch or convert the model again."
            )
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise self.wrong(f"{key} is {value!r}, not a positive whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        value = self.document.get(key, default)
        if value is None:
            raise ModelError(
                "config_key_missing", f"{self.path} has no {key}.", "Fetch or convert the model again."
            )
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
            raise self.wrong(f"{key} is {value!r}, not a positive number")
        return float(value)

    def count(self, key: str, default: int) -> int:
        """A whole number that may be 0."""
        value = self.document.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.wrong(f"{key} is {value!r}, not a whole number")
        return value

    def words(self, key: str, known: tuple[str, ...], length: int) -> list[str] | None:
        """The first `length` entries of a list of known words; None where there is no list."""
        value = self.document.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < length:
            raise self.wrong(f"{key} is {value!r}, not a list of {length} entries")
        unknown = [entry for entry in value if entry not in known]
        if unknown:
            raise self.wrong(f"{key} has {unknown[0]!r}, which is none of {', '.join(known)}")
        return [str(entry) for entry in value[:length]]

    def inside(self, key: str) -> ConfigReader:
        """The object of that key, an empty one where there is none."""
        value = self.document.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(f"{key} is {value!r}, not an object")
        return ConfigReader(value or {}, self.path)

    def wrong(self, what: str) -> ModelError:
        return ModelError("config_value", f"{self.path}: {what}.", "Fetch or convert the model again.")
