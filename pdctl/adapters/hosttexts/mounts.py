"""Mounted file systems as df prints them: blocks of any size, or -h; pure."""

from __future__ import annotations

import re

from pdctl.adapters.hosttexts.quantities import in_bytes
from pdctl.adapters.traces import Mount

_ROW = re.compile(r"(?P<size>\S+)\s+(?P<used>\S+)\s+(?P<free>\S+)\s+(?:\d+%|-)\s+(?P<path>/.*)$")
_BLOCKS = re.compile(r"\b(?P<n>\d+)(?P<unit>[KMG]?)B?-blocks\b")


def mounts(text: str) -> list[Mount]:
    """Mounts in the order of `text`. Inodes (df -i) are no bytes and are left out."""
    found: list[Mount] = []
    unit = 1024
    inodes = False
    for line in text.splitlines():
        if "Filesystem" in line:
            blocks = _BLOCKS.search(line)
            unit = (in_bytes(blocks["n"] + blocks["unit"]) or 1024) if blocks else 1024
            inodes = "Inodes" in line
        elif not inodes and (row := _ROW.search(line)):
            total, free = in_bytes(row["size"], unit), in_bytes(row["free"], unit)
            if total is not None and free is not None:
                found.append(Mount(row["path"].strip(), total, free))
    return found
