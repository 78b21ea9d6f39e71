"""Stacks of threads as py-spy and gdb print them; pure."""

from __future__ import annotations

import re

from pdctl.adapters.traces import Stack

_PROCESS = re.compile(r"^(?:Process|Attaching to process) (?P<pid>\d+)(?:: (?P<command>.*))?")
_THREAD = re.compile(r'^Thread (?P<id>\S+)(?: \([^)]*\))?:? ?"?(?P<name>[^"]*)"?')
_FRAME = re.compile(r"^\s+(?P<frame>\S.*)|^#\d+\s+(?P<gdb>.*)")
FRAMES = 60


def parse(text: str) -> list[Stack]:
    """Every thread of the text, in its order; innermost frame first, as both tools print them."""
    found: list[Stack] = []
    process, thread, frames = "", "", list[str]()

    def close() -> None:
        if frames:
            found.append(Stack(process, thread, tuple(frames[:FRAMES])))
            frames.clear()

    for line in text.splitlines():
        if head := _PROCESS.match(line):
            close()
            process, thread = f"{head['pid']} {head['command'] or ''}".strip(), ""
        elif head := _THREAD.match(line):
            close()
            thread = f"{head['id']} {head['name']}".strip()
        elif frame := _FRAME.match(line):
            frames.append((frame["frame"] or frame["gdb"]).strip())
    close()
    return found
