"""Progress on stderr: a line that stays, or on a terminal one that is replaced."""

from __future__ import annotations

import sys
import time


class Progress:
    """`say` prints a line with the seconds since the start; `wait` shows what is being waited for."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._tty = sys.stderr.isatty()
        self._started = time.monotonic()
        self._waiting = ""

    def say(self, text: str) -> None:
        if self._quiet:
            return
        self._clear()
        self._waiting = ""
        print(f"{time.monotonic() - self._started:7.1f} s  {text}", file=sys.stderr, flush=True)

    def wait(self, text: str) -> None:
        if self._quiet:
            return
        if self._tty:
            self._clear()
            self._waiting = f"{time.monotonic() - self._started:7.1f} s  {text}"
            print(self._waiting, end="", file=sys.stderr, flush=True)
        elif text != self._waiting:
            self._waiting = text
            print(f"{time.monotonic() - self._started:7.1f} s  {text}", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._tty and self._waiting:
            print("\r\x1b[2K", end="", file=sys.stderr)
