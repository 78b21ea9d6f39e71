"""A unit's log: the process appends to it by itself, the keeper only keeps it from growing for ever."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


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
        fd = self.open()
        try:
            os.write(fd, f"[keeper] {text}\n".encode())
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


def tail(path: Path, lines: int, chunk: int = 1 << 16) -> list[str]:
    """The last `lines` lines, reading from the end; an absent file has none."""
    try:
        with path.open("rb") as file:
            at = file.seek(0, os.SEEK_END)
            data = b""
            while at > 0 and data.count(b"\n") <= lines:
                step = min(chunk, at)
                at = file.seek(at - step)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    return data.decode("utf-8", "replace").splitlines()[-lines:]
