"""Launch settings: from a command line, a JSON answer, or the line that an engine logs at its start."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pdctl.adapters.launch.names import normal

_SGLANG = re.compile(r"server_args=ServerArgs\((?P<body>.*)\)")
_SGLANG_PAIR = re.compile(r"(?P<key>\w+)=(?P<value>'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|[^,()]+)(?:, |$)")
_ASSIGNED = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>.*)", re.DOTALL)
_VLLM = re.compile(r"non-default args: (?P<body>\{.*\})")


def words(text: str) -> list[str]:
    """A command line as words; one that a shell would not take is split at spaces."""
    joined = text.replace("\\\n", " ").replace("\0", " ")
    try:
        return shlex.split(joined, comments=True)
    except ValueError:
        return joined.split()


def from_command(argv: Sequence[str]) -> dict[str, str]:
    """Flags of a command line: --a 1, --a=1 and --a alone ("true")."""
    found: dict[str, str] = {}
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if not word.startswith("--") or word == "--":
            continue
        flag, equals, value = word.partition("=")
        if not equals:
            value = "true"
            if at < len(argv) and not argv[at].startswith("--"):
                value = argv[at]
                at += 1
        found |= dict(flat(normal(flag), value))
    return found


def from_assignments(argv: Sequence[str]) -> dict[str, str]:
    """Variables that a script gives to what it starts: exports, NAME=VALUE before a command, -e NAME=VALUE"""
    found: dict[str, str] = {}
    for before, word in pairwise(["", *argv]):
        given = not before.startswith("-") or before in ("-e", "--env")
        if given and (match := _ASSIGNED.match(word.removeprefix("--env="))):
            found[match["name"]] = match["value"].rstrip(";")
    return found


def flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A setting as text; JSON objects become name.key, so that two of them can be compared key by key."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            value = json.loads(value)
        except ValueError:
            pass
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(f"{name}.{key}", inner)
    elif value is not None:
        yield name, str(value).lower() if isinstance(value, bool) else str(value)


def from_json(document: Mapping[str, Any]) -> dict[str, str]:
    """From a JSON object of settings, such as GET /server_info."""
    return {k: v for key, value in document.items() for k, v in flat(normal(str(key)), value)}


def from_log(text: str) -> dict[str, str]:
    """From the last start that a log tells of; empty when it tells none."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SGLANG.search(line):
            pairs = {m["key"]: m["value"].strip("'\" ") for m in _SGLANG_PAIR.finditer(match["body"])}
            found = from_json({k: v for k, v in pairs.items() if v != "None"})
        elif match := _VLLM.search(line):
            try:
                given = ast.literal_eval(match["body"])
            except (ValueError, SyntaxError):
                continue
            found = from_json(given) if isinstance(given, dict) else found
    return found


def from_env(text: str) -> dict[str, str]:
    """KEY=VALUE lines or the NUL-separated form of /proc; `export`, quotes and comments are understood."""
    found: dict[str, str] = {}
    for line in re.split(r"[\n\0]", text):
        bare = line.strip().removeprefix("export ").strip()
        name, equals, value = bare.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            found[name] = value.strip().strip("'\"")
    return found
