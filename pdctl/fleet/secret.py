"""Which variables and arguments are secrets, by name or by what they look like."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|ACCESS_KEY|PRIVATE_KEY|PAT)(?:_|$)",
    re.IGNORECASE,
)
# A path to a secret is none.
_PATH = re.compile(r"_(?:FILE|PATH|DIR)$", re.IGNORECASE)
# A setting that only sounds like one.
_PLAIN = re.compile(r"-?\d{1,6}(?:\.\d+)?|true|false|yes|no|on|off|none|null|", re.IGNORECASE)
_LOOKS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|AKIA[0-9A-Z]{16}|nvapi-[\w-]{16,})"
    r"|(?<=://)[^/@:\s]+:[^/@\s]+(?=@)"
)
_ASSIGNED = re.compile(r"""([A-Za-z_][A-Za-z0-9_]*|--[a-z][a-z0-9-]*)(=| +)("[^"]*"|'[^']*'|[^\s"';&|]+)""")
MASK = "***"


def is_secret(name: str, value: str) -> bool:
    """Whether `value` of a variable, or of an option `--name`, must not be shown or kept in a plain file."""
    named = name.lstrip("-").replace("-", "_")
    if _PLAIN.fullmatch(value):
        return False
    sounds = _NAME.search(named) is not None and _PATH.search(named) is None
    return sounds or _LOOKS.search(value) is not None


def secret_words(words: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Index of a word -> (option, its secret): `--api-key X`, `--api-key=X` and words that look like one."""
    found: dict[int, tuple[str, str]] = {}
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        before = words[at - 1] if at else ""
        if word.startswith("--") and equals and is_secret(option, value):
            found[at] = (option, value)
        elif before.startswith("--") and "=" not in before and not word.startswith("--"):
            if is_secret(before, word):
                found[at] = (before, word)
        elif looks := _LOOKS.search(word):
            found[at] = ("--argument", looks[0])
    return found


def without_lookalikes(text: str) -> str:
    """`text` with every word that looks like a known kind of secret as ***."""
    return _LOOKS.sub(MASK, text)


def masked(text: str) -> str:
    """`text` of a script or a command line with everything that is a secret as ***."""

    def assigned(found: re.Match[str]) -> str:
        value = found[3].strip("\"'")
        reference = value.startswith("$")
        return found[1] + found[2] + MASK if is_secret(found[1], value) and not reference else found[0]

    return without_lookalikes(_ASSIGNED.sub(assigned, text))
