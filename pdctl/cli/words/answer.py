"""`python -m pdctl.cli.words.answer SHELL INDEX WORD…`: what may stand at INDEX of a command line.

A shell runs this at every Tab, so it loads neither the command line's own library nor anything of a host.
One candidate a line; FILES alone means that a path belongs there. It never fails aloud.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pdctl.cli.words.names import KINDS, Local, Names

FILES = ":files"
TABLE = Path(__file__).with_name("table.json")
# Words that a ":" and a name may follow.
_MARKED = ("running", "release")
# A verb: `verbs` below it by name, `options` and `arguments` as kinds ("" for anything, None for a flag),
# `with` an option the arguments that there are beside it; `many`: the last argument may be repeated.
Node = dict[str, Any]


def main(argv: list[str]) -> int:
    try:
        shell, at, words = argv[0], int(argv[1]), argv[2:]
        table = json.loads(TABLE.read_text(encoding="utf-8"))
        if shell == "bash":
            words, at = joined(words, at)
        lines = shown(shell, words[at] if at < len(words) else "", candidates(table, words[1:at], words[at:]))
        print("\n".join(lines))
    except Exception:  # noqa: BLE001 - whatever is wrong, a prompt is no place to say it
        return 1
    return 0


def joined(words: list[str], at: int) -> tuple[list[str], int]:
    """Bash takes --name=value apart at the "=" and running:UNIT at the ":"; here each is one word again."""
    out: list[str] = []
    place = at
    for index, word in enumerate(words):
        mark = next((m for m in words[max(index - 1, 0) : index + 1] if m in ("=", ":")), "")
        if out and mark and (out[-1].startswith("--") if mark == "=" else out[-1].startswith(_MARKED)):
            out[-1] += word
        else:
            out.append(word)
        if index == at:
            place = len(out) - 1
    return out, place


def candidates(table: Node, before: list[str], rest: list[str]) -> Names:
    """What may follow `before`; `rest` begins with the word at the cursor, if there is one."""
    current = rest[0] if rest else ""
    node, position, local, wants = table, 0, Local(), None
    words = iter(before)
    for word in words:
        if word == "--fleet" or word.startswith("--fleet="):
            local = Local(word.partition("=")[2] or next(words, ""))
            continue
        option = _options(table, node).get(word) if word.startswith("-") else None
        if option is not None and next(words, None) is None:
            wants = option
        elif word.startswith("-"):
            continue
        elif word in node.get("verbs", {}):
            node, position = node["verbs"][word], 0
        else:
            position += 1
    if before and before[-1] == "--fleet":
        wants = FILES
    if wants is not None:
        return _of(wants, local)
    if current.startswith("--") and "=" in current:
        name = current.partition("=")[0]
        found = _of(FILES if name == "--fleet" else _options(table, node).get(name) or "", local)
        return found if FILES in found else {f"{name}={value}": said for value, said in found.items()}
    if current.startswith("-"):
        return {name: node.get("help", {}).get(name, "") for name in _options(table, node)}
    if verbs := node.get("verbs"):
        return {name: below.get("says", "") for name, below in verbs.items()}
    kinds = _arguments(node, {word.partition("=")[0] for word in (*before, *rest[1:])})
    if kinds and node.get("many"):
        position = min(position, len(kinds) - 1)
    return _of(kinds[position], local) if position < len(kinds) else {}


def _arguments(node: Node, words: set[str]) -> list[str]:
    """Their kinds, with what any option says of them wherever it stands."""
    said = [kinds for option, kinds in node.get("with", {}).items() if option in words]
    return said[0] if said else node.get("arguments", [])


def _options(table: Node, node: Node) -> dict[str, str | None]:
    """Of the verb, and those that may stand behind every verb."""
    return {**node.get("options", {}), **table["options"]}


def _of(kind: str, local: Local) -> Names:
    if kind == FILES:
        return {FILES: ""}
    if "|" in kind:
        return dict.fromkeys(kind.split("|"), "")
    return KINDS[kind](local) if kind in KINDS else {}


def shown(shell: str, current: str, found: Names) -> Iterable[str]:
    """The lines of those that `current` begins, as `shell` reads them."""
    if FILES in found:
        return [FILES]
    fit = {name: said for name, said in found.items() if name.startswith(current)}
    if shell == "bash":
        # What bash replaces begins behind the last "=" of --name=value, and the ":" of running:UNIT.
        mark = "=" if current.startswith("--") else ":"
        head = current.rpartition(mark)[0] + mark if mark in current else ""
        return [name.removeprefix(head) for name in fit]
    if shell == "zsh":
        return [name.replace(":", "\\:") + (f":{said}" if said else "") for name, said in fit.items()]
    return [f"{name}\t{said}" if said else name for name, said in fit.items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
