"""Secrets out of everything that was collected; pure.

Variables are taken by an allow-list before they get here; this is for logs, answers and command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pdctl.fleet.secret import MASK, without_lookalikes

SHORTEST = 8  # characters; a shorter word would be found where it is none

_PLAIN = r"(?!secret sha256:|(?:None|null|true|false|True|False)\b|\*\*\*|[\d.]+\b)"
_BEARER = re.compile(r"\b(Bearer|Basic)(\s+|%20)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_NAMES = (
    r"(?:api[-_]?key|access[-_]?key|private[-_]?key|secret|password|passwd|"
    r"(?:auth|fleet|hf|access|admin|hub|bearer)[-_]?token)"
)
_ASSIGNED = re.compile(
    rf"""(["']?\b[\w-]*{_NAMES}["']?\s*[:=]\s*|--(?:[\w-]+-)?(?:api-key|token|secret|password)[ =]){_PLAIN}"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\s,;&)}\]"']+)""",
    re.IGNORECASE,
)


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """`text` with bearer tokens, keys and the secrets `known` to pdctl as ***; JSON stays JSON."""
    for secret in known:
        if len(secret) >= SHORTEST:
            text = text.replace(secret, MASK)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    return without_lookalikes(_ASSIGNED.sub(_masked, text))


def _masked(found: re.Match[str]) -> str:
    value = found[2]
    if value in ('""', "''"):
        return found[0]
    quote = value[0] if value[:1] in "\"'" else ""
    return f"{found[1]}{quote}{MASK}{quote}"
