"""Secrets out of everything that was collected; pure.

Variables are taken by an allow-list before they get here; this is for logs, answers and command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pdctl.fleet.secret import MASK, without_lookalikes

SHORTEST = 8  # characters; a shorter word would be found where it is none

_PLAIN = r"(?!secret sha256:|(?:None|null|true|false|True|False)\b|\*\*\*|[\d.]+\b)"
_BEARER = re.compile(r"\b(Bearer|Basic)(\s+|%20|:)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_NAMES = (
    r"(?:api[-_]?key|access[-_]?key|private[-_]?key|secret|password|passwd|passphrase|credentials?|"
    r"(?:auth|fleet|hf|access|admin|hub|bearer|session|refresh)[-_]?token)"
)
_ASSIGNED = re.compile(
    rf"""((?:{_NAMES}|(?<![\w-])token)["']?\s*[:=]\s*|"""
    rf"""--(?:[\w-]+-)?(?:api-key|token|secret|password)[ =]){_PLAIN}"""
    r"""("[^"\n]*"|'[^'\n]*'|\[[^\]\n]*\]|[^\s,;&)}\]"']+)""",
    re.IGNORECASE,
)
# vLLM takes several keys behind one option.
_MORE_KEYS = re.compile(r"(--api-key[ =]\*\*\*)(?: (?!-)[^\s,;&)}\]\"']+){1,3}")
# What a header or a URL's query says of who asks.
_HEADER = re.compile(
    r"""(\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?|\b(?:set-)?cookie["']?:\s*["']?)"""
    r"""(?!\*\*\*|(?:Bearer|Basic)\b)[^\s"',;]+(?: [^\s"',;]+)?""",
    re.IGNORECASE,
)
_QUERY = re.compile(r"([?&](?:[\w-]*signature|sig|auth)=)[^\s&\"']+", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+")
_PEM = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_TOKEN_AT = re.compile(r"(?<=://)[^/@:\s]{16,}(?=@)")


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """`text` with bearer tokens, keys and the secrets `known` to pdctl as ***; JSON stays JSON."""
    for secret in known:
        if len(secret) >= SHORTEST:
            text = text.replace(secret, MASK)
    low = text.lower()  # most logs have no header, query or key in them: asking for the word is quick
    if "private key-----" in low:
        text = _PEM.sub(rf"\1 {MASK} \2", text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    text = _MORE_KEYS.sub(r"\1", "".join(map(_of_line, text.splitlines(keepends=True))))
    if "authorization" in low or "cookie" in low:
        text = _HEADER.sub(rf"\1{MASK}", text)
    if "signature=" in low or "sig=" in low or "auth=" in low:
        text = _QUERY.sub(rf"\1{MASK}", text)
    text = _JWT.sub(MASK, text) if "eyJ" in text else text
    text = _TOKEN_AT.sub(MASK, text) if "://" in text else text
    return without_lookalikes(text)


# No line without one of these assigns a secret; what engines print with every step counts tokens.
_STEMS = re.compile(r"key|secret|passw|passphrase|credential|token[=\"' :]", re.IGNORECASE)
_COUNTS = ("#token: ", "#new-token: ")


def _of_line(line: str) -> str:
    if any(count in line for count in _COUNTS) or not _STEMS.search(line):
        return line
    return _ASSIGNED.sub(_masked, line)


def _masked(found: re.Match[str]) -> str:
    value = found[2]
    if value in ('""', "''", "[]"):
        return found[0]
    if value.startswith("["):
        quote = '"' if '"' in value else "'"
        return f"{found[1]}[{quote}{MASK}{quote}]"
    quote = value[0] if value[:1] in "\"'" else ""
    return f"{found[1]}{quote}{MASK}{quote}"
