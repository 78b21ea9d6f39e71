"""Everything wrong with a TOML file, as `file:line: path: sentence`, without ever echoing its text."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from pdctl.errors import ConfigError
from pdctl.fleet.lines import key_lines, line_of
from pdctl.fleet.names import nearest

M = TypeVar("M", bound=BaseModel)
Keys = tuple[str, ...]

_DAY = "must be a day as 2027-01-31, without quotes."
_SENTENCES = {
    "missing": "is missing.",
    "int_type": "must be a whole number, without quotes.",
    "float_type": "must be a number, without quotes.",
    "string_type": "must be text in quotes.",
    "bool_type": "must be true or false.",
    "dict_type": "must be a table.",
    "model_type": "must be a table.",
    "string_too_short": "must not be empty.",
    "list_type": "must be a list, in square brackets.",
    "date_type": _DAY,
    "date_from_datetime_inexact": _DAY,
}
NAME_RULE = (
    "is not a valid name: lower-case letters, digits and dashes, at most 40, not starting with a dash."
)
# By how the pattern begins.
_PATTERNS = {
    "^[A": "is not a variable's name.",
    "^PD": "is no rule's code, as PD602 is; see `pdctl explain`.",
}


class TomlFile:
    """One parsed file and the problems found in it so far. `text` is its text, else it is read."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.problems: list[tuple[int, str]] = []
        text = _read(path) if text is None else text
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r" ?\(at (?:line (\d+), column \d+|end of document)\)", str(error))
            line = at[1] if at and at[1] else str(len(text.splitlines()))
            reason = str(error).replace(at[0], "") if at else str(error)
            detail = f"{path}:{line}: {reason}."
            raise ConfigError("toml_syntax", f"{path} is not valid TOML.", details=[detail]) from None
        self._lines = key_lines(text)

    def line(self, *keys: str) -> int:
        return line_of(self._lines, keys)

    def problem(self, keys: Keys, sentence: str) -> None:
        line = self.line(*keys)
        self.problems.append((line, f"{self.path}:{line}: {'.'.join(keys)}: {sentence}"))

    def validate(self, model: type[M]) -> M | None:
        """The validated model, or None with the problems noted."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                keys = tuple(str(k) for k in item["loc"])
                bad_key = keys[-1:] == ("[key]",)
                keys = keys[:-1] if bad_key else keys
                self.problem(keys, _sentence(model, keys, item, bad_key))
            return None

    def finish(self, code: str, what: str) -> None:
        """Raise one ConfigError with every problem in the order of the file."""
        if self.problems:
            details = list(dict.fromkeys(text for _, text in sorted(self.problems)))
            count = f"{len(details)} problem{'s' if len(details) > 1 else ''}"
            raise ConfigError(code, f"{what} has {count}.", details=details)


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        detail = f"{path}:{line}: byte {error.object[error.start]:#04x} is not UTF-8."
        raise ConfigError("toml_syntax", f"{path} is not UTF-8 text.", details=[detail]) from None
    except OSError as error:
        raise ConfigError("unreadable", f"{path} cannot be read: {error.strerror}.") from None
    if text.startswith("\ufeff"):
        detail = f"{path}:1: a byte order mark; save the file as UTF-8 without one."
        raise ConfigError("toml_syntax", f"{path} is not valid TOML.", details=[detail])
    return text


def _sentence(model: type[BaseModel], keys: Keys, item: Any, bad_key: bool) -> str:
    kind, ctx = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key. {nearest(keys[-1], _names_at(model, keys[:-1]))}".strip()
    if kind == "literal_error":
        valid = ctx["expected"].replace(" or ", ", ").replace("'", "")
        if str(item["input"]) in valid.split(", "):
            return f"must be {item['input']} without quotes."
        near = difflib.get_close_matches(str(item["input"]), valid.split(", "), 1)
        return f"must be one of {valid}." + (f" Did you mean {near[0]}?" if near else "")
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(ctx["pattern"][:3], NAME_RULE)
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"must be {'at least' if 'ge' in ctx else 'at most'} {ctx.get('ge', ctx.get('le'))}."
    return _SENTENCES.get(kind, f"is wrong: {item['msg']}.")


def _names_at(model: type[BaseModel], keys: Keys) -> Iterable[str]:
    """Field names valid in the table at `keys`; a dict of tables takes any name."""
    here: Any = model
    for key in keys:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(key)
            here = field.annotation if field else None
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        if here is None:
            return ()
        inner = [a for a in get_args(here) if isinstance(a, type) and issubclass(a, BaseModel)]
        if get_origin(here) is not dict and inner:
            here = inner[0]
    if isinstance(here, type) and issubclass(here, BaseModel):
        return [f.alias or n for n, f in here.model_fields.items()]
    return ()
