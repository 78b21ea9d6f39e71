"""Progress on stderr: a line that stays, or on a terminal one that is replaced."""

from __future__ import annotations

import sys
import threading
import time

_CLEAR = "\r\x1b[2K"


class Progress:
    """`say` prints a line with the seconds since the start; `wait` shows what is being waited for, "" for
    nothing any more.

    Hosts are worked on by threads, so a line goes out whole or not at all.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._tty = sys.stderr.isatty()
        self._started = time.monotonic()
        self._waiting = ""
        self._whole = threading.Lock()

    def say(self, text: str) -> None:
        if self._quiet:
            return
        with self._whole:
            self._put(self._cleared() + self._line(text) + "\n")
            self._waiting = ""

    def wait(self, text: str) -> None:
        if self._quiet:
            return
        with self._whole:
            if self._tty:
                self._put(self._cleared() + (self._line(text) if text else ""))
            elif not text:
                pass
            elif text != self._waiting:
                self._put(self._line(text) + "\n")
            self._waiting = text

    def _line(self, text: str) -> str:
        return f"{time.monotonic() - self._started:7.1f} s  {text}"

    def _cleared(self) -> str:
        return _CLEAR if self._tty and self._waiting else ""

    def _put(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
