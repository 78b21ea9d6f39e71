"""A unit's log: the process appends to it by itself, the keeper only keeps it from growing for ever."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

MARK = "[keeper]"
STARTED = "started as pid"


class LogFile:
    """Rotation copies and truncates, so a process outlives its keeper without losing its standard output.

    At most `limit` bytes and what is written between two looks, plus `keep` older files of the same size.
    """

    def __init__(self, path: str, limit: int, keep: int) -> None:
        self.path = Path(path)
        self._limit = limit
        self._keep = keep
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    def open(self) -> int:
        """A descriptor for a process's stdout and stderr."""
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def note(self, text: str) -> None:
        """One line of the keeper's own, marked as such."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        fd = self.open()
        try:
            os.write(fd, f"{stamp} {MARK} {text}\n".encode())
        finally:
            os.close(fd)

    def rotate(self) -> None:
        """Move the log aside when it is past its limit."""
        try:
            if self.path.stat().st_size < self._limit:
                return
        except FileNotFoundError:
            return
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                os.replace(older, self._numbered(number + 1))
        if self._keep:
            shutil.copyfile(self.path, self._numbered(1))
        os.truncate(self.path, 0)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
