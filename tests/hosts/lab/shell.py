"""Running programs of this machine, and what it has mounted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any


class LabError(RuntimeError):
    """The lab itself failed, not what is tested on it."""


def sh(*argv: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program with both outputs in `stdout`; LabError with what it said when it fails."""
    words = [str(word) for word in argv]
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.STDOUT)
    done = subprocess.run(words, text=True, **options)
    if check and done.returncode:
        raise LabError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout or ''}")
    return done


def mount_points() -> list[str]:
    """os.path.ismount misses a folder bound to itself; the kernel's table does not."""
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def write(path: Path | str, text: str) -> None:
    """For control files, which are written whole in one call and never created."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
