"""Which variables a piece of script that was not followed may have changed; rather too many than too few."""

from __future__ import annotations

import re

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNED = re.compile(rf"(?<![$\w])({_NAME})(?:\[[^\]]*\])?\+?=|\$\{{({_NAME}):?=")
_LISTED = re.compile(
    r"\b(?:read|mapfile|readarray|unset|export|declare|typeset|readonly|local|getopts|let|printf\s+-v)"
    r"\b([^;&|\n]*)"
)
_LOOP = re.compile(rf"\b(?:for|select)\s+({_NAME})")
# What is given to a name is no name.
_VALUE = re.compile(r"=(?:\"[^\"]*\"|'[^']*'|[^\s\"'])*")
_COMPUTED = re.compile(r"(?<![\w$}])\w*\$\{?\w+\}?\w*(?![\w$])")
_ARITHMETIC = re.compile(r"\(\((.*?)\)\)", re.DOTALL)
_CHANGED = re.compile(
    rf"\b({_NAME})\s*(?:\[[^\]]*\]\s*)?(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*({_NAME})"
)
_WORD = re.compile(rf"(?<![$\w{{])({_NAME})(?![\w$])")
_EXPORTED = re.compile(r"\b(?:export|declare\s+-\w*x\w*|typeset\s+-\w*x\w*)\b([^;&|\n]*)")
_ANYTHING = re.compile(r"(?:^|[\s;&|({])(?:source|\.|eval|exec|cd|pushd|set|shopt)\s")
ENGINE = re.compile(
    r"sglang\.launch_server|sglang serve|vllm serve|vllm\.entrypoints|sglang_router|sglang-router"
)


def touched(text: str) -> set[str]:
    """Names that `text` may assign or unset."""
    found = {name for pair in _ASSIGNED.findall(text) for name in pair if name}
    for part in _LISTED.findall(text):
        found |= set(_WORD.findall(_VALUE.sub("", part)))
    return found | set(_LOOP.findall(text)) | expanded(text)


def computed(text: str) -> list[str]:
    """Names that `text` exports and that it puts together itself, as they stand there: GPU_$i."""
    parts = [_VALUE.sub("", part) for part in _EXPORTED.findall(text)]
    return list(dict.fromkeys(name for part in parts for name in _COMPUTED.findall(part)))


def expanded(text: str) -> set[str]:
    """Names that expanding `text` may assign: `${X:=…}` and arithmetic."""
    found = {second for _, second in _ASSIGNED.findall(text) if second}
    for part in _ARITHMETIC.findall(text):
        found |= {name for pair in _CHANGED.findall(part) for name in pair if name}
    return found


def exported(text: str) -> set[str]:
    """Names that `text` may export."""
    return {name for part in _EXPORTED.findall(text) for name in _WORD.findall(_VALUE.sub("", part))}


def anything(text: str) -> bool:
    """Whether `text` may change more than the names in it."""
    return _ANYTHING.search(text) is not None
